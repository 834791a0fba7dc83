"""Spark's catalog configuration as PyIceberg takes it."""

import logging
from pathlib import Path
from urllib.parse import quote

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy.engine import make_url

from planner.spark.catalogs import SparkCatalogs, _sql, open_spark_catalog
from puffin_index.errors import CatalogError

_SPARK_CATALOG = "org.apache.iceberg.spark.SparkCatalog"


def conf_of(name: str, **properties: str) -> dict[str, str]:
    prefix = f"spark.sql.catalog.{name}"
    return {prefix: _SPARK_CATALOG, **{f"{prefix}.{key}": value for key, value in properties.items()}}


@pytest.mark.parametrize(("name", "settings"), [("a b%20#.db", ""), ("catalog.db", "?journal_mode=WAL")])
def test_a_sqlite_path_keeps_all_but_settings_of_the_driver(tmp_path: Path, name: str, settings: str) -> None:
    catalog = open_spark_catalog(conf_of("lake", type="jdbc", uri=f"jdbc:sqlite:{tmp_path / name}{settings}"), "lake")
    assert isinstance(catalog, SqlCatalog)
    assert (tmp_path / name).exists()
    catalog.close()


@pytest.mark.parametrize("password", ["plain", "a:b/c@d?e#f%20 ä"])
@pytest.mark.parametrize("in_uri", [False, True])
def test_a_postgres_catalog_gets_user_and_password_as_they_are(password: str, in_uri: bool) -> None:
    uri = "jdbc:postgresql://db.example:5433/lake?ssl=true&sslmode=require"
    if in_uri:
        properties = {"uri": f"{uri}&user=me&password={quote(password, safe='')}"}
    else:
        properties = {"uri": uri, "jdbc.user": "me", "jdbc.password": password}

    url = make_url(_sql(properties)["uri"])

    assert (url.username, url.password) == ("me", password)
    assert (url.host, url.port, url.database) == ("db.example", 5433, "lake")
    assert dict(url.query) == {"sslmode": "require"}


@pytest.mark.parametrize("uri", ["jdbc:mysql://me:secret@host/db", "postgresql://me:secret@host/db", ""])
def test_other_databases_are_refused_without_repeating_secrets(uri: str) -> None:
    with pytest.raises(CatalogError, match="not supported") as caught:
        open_spark_catalog(conf_of("lake", type="jdbc", uri=uri), "lake")
    assert "secret" not in str(caught.value)


def test_what_is_no_catalog_of_sparks_is_not_there_and_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    catalogs, conf = SparkCatalogs({}), conf_of("lake", type="hadoop")
    with caplog.at_level(logging.WARNING):
        assert catalogs.find("/path/of/a/table", conf) is None
        assert caplog.text == ""
        assert catalogs.find("lake", conf) is None
        assert catalogs.find("lake", conf) is None
    assert caplog.text.count("cannot be opened") == 1


def test_catalogs_that_are_handed_in_are_not_opened(tmp_path: Path) -> None:
    mine = SqlCatalog("lake", uri=f"sqlite:///{tmp_path / 'c.db'}")
    assert SparkCatalogs({"lake": mine}).find("lake", {}) is mine
    mine.close()


def test_sessions_that_configure_a_catalog_differently_have_catalogs_of_their_own(tmp_path: Path) -> None:
    confs = [conf_of("lake", type="jdbc", uri=f"jdbc:sqlite:{tmp_path / name}") for name in ("a.db", "b.db")]
    catalogs = SparkCatalogs({})

    first, second, again = (catalogs.find("lake", conf) for conf in (*confs, dict(confs[0])))

    assert isinstance(first, SqlCatalog)
    assert isinstance(second, SqlCatalog)
    assert first is again
    assert first is not second
    for catalog in (first, second):
        catalog.close()
