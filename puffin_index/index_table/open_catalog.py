"""Open catalogs by name, from PyIceberg's configuration and overrides."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pyiceberg import exceptions
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.utils.config import Config
from requests.exceptions import RequestException
from sqlalchemy.exc import SQLAlchemyError

from puffin_index.errors import CatalogError, NotFoundError, PuffinIndexError, did_you_mean
from puffin_index.storage.whole_files import read_tables_whole

SILENCE = (exceptions.RESTError, RequestException, SQLAlchemyError)
"""The errors of a catalog that does not answer."""

CATALOG_ERRORS = (exceptions.CommitFailedException, exceptions.CommitStateUnknownException, *SILENCE)
"""The errors of a catalog that does not answer or does not take a commit."""

PASSING_ERRORS = (
    *CATALOG_ERRORS,
    PuffinIndexError,
    exceptions.NoSuchTableError,
    exceptions.NoSuchNamespaceError,
    OSError,
)
"""The errors that stores, catalogs and changing tables may raise; any other error is a mistake of ours."""

_SQLITE = "sqlite:///"


def split_catalog(table: str) -> tuple[str, str]:
    """Split `catalog.namespace.table` after the catalog, or raise NotFoundError if the text has another form."""
    catalog, _, name = table.partition(".")
    if not catalog or name.count(".") < 1 or not all(name.split(".")):
        raise NotFoundError(f"{table!r} is not a table name: it should read catalog.namespace.table")
    return catalog, name


def open_catalog(name: str, overrides: Mapping[str, str]) -> Catalog:
    """Open a catalog with some properties overridden, or raise CatalogError if it is not configured or not there."""
    properties = {**(Config().get_catalog_config(name) or {}), **overrides}
    if not properties:
        raise CatalogError(
            f"catalog {name!r} is not configured: add it to .pyiceberg.yaml, set "
            f"PYICEBERG_CATALOG__{name.upper()}__URI, or pass --catalog-property uri=..."
            f"{did_you_mean(name, map(str, Config().config.get('catalog') or ()))}"
        )
    uri = str(properties.get("uri", ""))
    # SQLAlchemy would quietly create an empty database at a mistyped path.
    path = uri.removeprefix(_SQLITE).partition("?")[0]
    if uri.startswith(_SQLITE) and not path.startswith("file:") and not Path(path).exists():
        raise CatalogError(f"catalog {name!r} is not there: no file {path}")
    try:
        return read_tables_whole(load_catalog(name, **{key: str(value) for key, value in overrides.items()}))
    except (ValueError, ImportError, OSError) as error:
        raise CatalogError(f"catalog {name!r} cannot be opened: {error}") from error
