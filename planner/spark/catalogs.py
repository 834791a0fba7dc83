"""Spark's catalogs as PyIceberg sees them, opened from Spark's own configuration."""

import logging
import threading
from collections.abc import Mapping

from pyiceberg.catalog import Catalog, load_catalog
from sqlalchemy.engine import URL, make_url

from puffin_index.errors import CatalogError
from puffin_index.jobs.log_lines import reason_of
from puffin_index.storage.whole_files import read_tables_whole

_log = logging.getLogger(__name__)

_DIALECTS = ("sqlite", "postgresql")
_LOGIN = ("user", "password")
_LIBPQ = ("sslmode", "sslrootcert", "sslcert", "sslkey", "options")
"""Parameters of a JDBC URI that PostgreSQL's C library has under the same names."""

_KINDS = {"JdbcCatalog": "jdbc", "RESTCatalog": "rest", "HiveCatalog": "hive", "GlueCatalog": "glue"}
_RENAMED = {"client.region": "s3.region"}


class SparkCatalogs:
    """The catalogs of sessions, opened on first use; some are given open, by name."""

    def __init__(self, catalogs: Mapping[str, Catalog]) -> None:
        self._given = dict(catalogs)
        self._opened: dict[tuple[str, frozenset[tuple[str, str]]], Catalog | None] = {}
        self._lock = threading.Lock()

    def is_given(self, name: str) -> bool:
        """Whether the catalog was given open."""
        return name in self._given

    def find(self, name: str, conf: Mapping[str, str]) -> Catalog | None:
        """Find a catalog by the session's entries; None if Spark has none, or (warned once) if PyIceberg fails."""
        if name in self._given:
            return self._given[name]
        # The name of a table that was loaded by its location is a path and begins with no catalog.
        if f"spark.sql.catalog.{name}" not in conf:
            return None
        key = name, frozenset(spark_catalog_properties(conf, name).items())
        with self._lock:
            if key not in self._opened:
                try:
                    self._opened[key] = open_spark_catalog(conf, name)
                except CatalogError as error:
                    _log.warning("no index is used for tables of this catalog: %s", reason_of(error))
                    self._opened[key] = None
            return self._opened[key]


def spark_catalog_properties(conf: Mapping[str, str], name: str) -> dict[str, str]:
    """The properties of a Spark catalog, without their prefix."""
    prefix = f"spark.sql.catalog.{name}."
    return {key.removeprefix(prefix): value for key, value in conf.items() if key.startswith(prefix)}


def open_spark_catalog(conf: Mapping[str, str], name: str) -> Catalog:
    """Open a Spark catalog from PyIceberg, by the session's whole configuration.

    Raises CatalogError if PyIceberg has no such kind, and its own configuration (`.pyiceberg.yaml`) no such name.
    """
    properties = spark_catalog_properties(conf, name)
    implementation = properties.get("catalog-impl", "")
    kind = properties.get("type") or next((own for name, own in _KINDS.items() if implementation.endswith(name)), "")
    try:
        match kind:
            case "jdbc":
                own = {**_common(properties), "type": "sql", **_sql(properties)}
            case "rest" | "hive" | "glue":
                own = {**_common(properties), "type": kind}
            case _:
                own = {}
        return read_tables_whole(load_catalog(name, **own))
    except (ValueError, ImportError) as error:
        raise CatalogError(
            f"catalog {name!r} ({kind or 'no type'}) cannot be opened by PyIceberg: {error}; configure a catalog "
            f"of that name in .pyiceberg.yaml or pass it: planner.enable(spark, catalogs={{{name!r}: ...}})"
        ) from error


def _common(properties: Mapping[str, str]) -> dict[str, str]:
    # io-impl and catalog-impl name Java classes, and the URI has the settings of JDBC.
    skipped = {"type", "io-impl", "catalog-impl"}
    return {
        _RENAMED.get(key, key): value
        for key, value in properties.items()
        if key not in skipped and not key.startswith("jdbc.")
    }


def _sql(properties: Mapping[str, str]) -> dict[str, str]:
    uri = properties.get("uri", "")
    scheme = uri.removeprefix("jdbc:").partition(":")[0]
    if not uri.startswith("jdbc:") or scheme not in _DIALECTS:
        raise ValueError(f"a JDBC catalog on {scheme!r} is not supported")
    if scheme == "sqlite":
        # Settings of the JDBC driver follow the path, such as `?journal_mode=WAL`.
        path = uri.removeprefix("jdbc:sqlite:").partition("?")[0]
        return {"uri": URL.create("sqlite", database=path).render_as_string()}
    url = make_url(uri.removeprefix("jdbc:"))
    user, password = (properties.get(f"jdbc.{key}") or url.normalized_query.get(key, (None,))[0] for key in _LOGIN)
    url = url.set(
        drivername="postgresql+psycopg2",
        username=user,
        password=password,
        query={key: value for key, value in url.query.items() if key in _LIBPQ},
    )
    # Connections of a session that lives for days break while nobody asks; without a ping, a query would find out.
    ping = properties.get("pool_pre_ping", "true")
    return {"uri": url.render_as_string(hide_password=False), "pool_pre_ping": ping}
