"""The PyIceberg catalog that a Spark catalog stands for, from Spark's own configuration: nothing is asked twice."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pyiceberg.catalog import Catalog, load_catalog

from puffin_index.errors import CatalogError

_JDBC = re.compile(r"jdbc:(sqlite|postgresql):(.*)", re.DOTALL)
_RENAMED = {"client.region": "s3.region", "rest.signing-region": "rest.signing-region"}


def spark_catalog_properties(conf: Mapping[str, str], name: str) -> dict[str, str]:
    """The properties of a Spark catalog, without their prefix."""
    prefix = f"spark.sql.catalog.{name}."
    return {key.removeprefix(prefix): value for key, value in conf.items() if key.startswith(prefix)}


def open_spark_catalog(conf: Mapping[str, str], name: str) -> Catalog:
    """Open a Spark catalog from PyIceberg.

    Args:
        conf: All of the session's configuration.
        name: The catalog's name in Spark.

    Raises:
        CatalogError: If PyIceberg has no such kind of catalog; then PyIceberg's own configuration (`.pyiceberg.yaml`)
            may name one of that name.
    """
    properties = spark_catalog_properties(conf, name)
    kind = properties.get("type") or _kind_of_implementation(properties.get("catalog-impl", ""))
    try:
        match kind:
            case "jdbc":
                return load_catalog(name, **{**_common(properties), "type": "sql", **_sql(properties)})
            case "rest" | "hive" | "glue":
                return load_catalog(name, **{**_common(properties), "type": kind})
            case _:
                return load_catalog(name)
    except (ValueError, ImportError) as error:
        raise CatalogError(
            f"catalog {name!r} ({kind or 'no type'}) cannot be opened by PyIceberg: {error}; configure a catalog "
            f"of that name in .pyiceberg.yaml or pass it: planner.enable(spark, catalogs={{{name!r}: ...}})"
        ) from error


def _kind_of_implementation(implementation: str) -> str:
    for suffix, kind in (
        ("JdbcCatalog", "jdbc"),
        ("RESTCatalog", "rest"),
        ("HiveCatalog", "hive"),
        ("GlueCatalog", "glue"),
    ):
        if implementation.endswith(suffix):
            return kind
    return ""


def _common(properties: Mapping[str, str]) -> dict[str, str]:
    # io-impl, catalog-impl and type name Java classes.
    skipped = {"type", "io-impl", "catalog-impl"}
    return {_RENAMED.get(key, key): value for key, value in properties.items() if key not in skipped}


def _sql(properties: Mapping[str, str]) -> dict[str, str]:
    uri = properties.get("uri", "")
    match = _JDBC.fullmatch(uri)
    if match is None:
        raise ValueError(f"a JDBC catalog on {uri.split(':', 2)[1] if ':' in uri else uri!r} is not supported")
    dialect, rest = match.groups()
    if dialect == "sqlite":
        return {"uri": f"sqlite:///{rest}"}
    user, password = properties.get("jdbc.user", ""), properties.get("jdbc.password", "")
    credentials = f"{user}:{password}@" if password else f"{user}@" if user else ""
    return {"uri": f"postgresql+psycopg2://{credentials}{rest.removeprefix('//')}"}
