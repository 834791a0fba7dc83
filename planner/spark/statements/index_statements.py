"""`CREATE INDEX` and `DROP INDEX` on Iceberg tables, as Spark has parsed and resolved them."""

import logging
from collections.abc import Mapping
from typing import Literal

from planner.condition.spark.nodes import Message
from planner.spark.statements.session import StatementSession
from puffin_index.definition.index_definition import IndexDefinition, IndexedColumn
from puffin_index.errors import BuildError, DefinitionError, IndexExistsError, NotFoundError, UnsupportedError
from puffin_index.keys.map_key import SEPARATOR
from puffin_index.kinds.kind import IndexKind
from puffin_index.kinds.registry import KINDS, kind_named
from puffin_index.table_index import TableIndex

_log = logging.getLogger(__name__)

_BUILD = "build"
_WHERE = "where"
_KEY = "key"
_BUILDS = ("async", "sync", "none")


class StatementColumn(Message):
    """A column of `CREATE INDEX` by the names of structs and leaf."""

    path: list[str]
    options: dict[str, str] = {}


class CreateIndex(Message):
    """`CREATE INDEX [IF NOT EXISTS] name ON table USING kind (columns) OPTIONS (options)`.

    Options say how to build, or hold for all columns.
    """

    statement: Literal["create"]
    catalog: str
    table: list[str]
    name: str
    kind: str
    if_not_exists: bool
    columns: list[StatementColumn]
    options: dict[str, str]

    def execute(self, session: StatementSession) -> None:
        """Execute `CREATE INDEX`.

        Raises DefinitionError if kind, columns or options do not fit the table, or another index has the name,
        UnsupportedError if the statement asks for a partial index, NotFoundError if PyIceberg does not find the table,
        BuildError if the statement waits for the build and the build fails; the index then stays defined.
        """
        if not self.kind:
            raise DefinitionError(f"the statement names no kind of index: add USING and one of {', '.join(KINDS)}")
        kind = kind_named(self.kind.lower())
        options = _lower(self.options, "the statement")
        if _WHERE in options:
            raise UnsupportedError(
                "there are no partial indexes: an index covers every row of a data file, so leave out option 'where'; "
                "CALL puffin.system.build(table => ..., where => ...) chooses data files to index"
            )
        build = options.pop(_BUILD, "async").lower()
        if build not in _BUILDS:
            raise DefinitionError(f"option build cannot be {build!r}; there are: {', '.join(_BUILDS)}")
        definition = IndexDefinition(tuple(_column(kind, column, options) for column in self.columns))
        table = session.table_of(self.catalog, self.table)
        try:
            index = TableIndex.add(table.catalog, table.name, self.name, definition)
        except IndexExistsError:
            if not self.if_not_exists:
                raise
            _log.info("index %s of %s exists already: nothing is done", self.name, table)
            return
        match build:
            case "async":
                session.builds.start(table, index, session.spark)
            case "sync":
                try:
                    session.builds.run(table, index, session.spark)
                except BuildError as error:
                    raise BuildError(f"index {self.name!r} is defined, but was not built: {error}") from error


class DropIndex(Message):
    """`DROP INDEX name ON table`, in a catalog by its name in Spark."""

    statement: Literal["drop"]
    catalog: str
    table: list[str]
    name: str
    if_exists: bool

    def execute(self, session: StatementSession) -> None:
        """Execute `DROP INDEX`.

        Raises NotFoundError if there is no such index, DefinitionError if properties of the table define it.
        """
        table = session.table_of(self.catalog, self.table)
        try:
            table.index().remove(self.name)
        except NotFoundError:
            if not self.if_exists:
                raise


def _column(kind: IndexKind, column: StatementColumn, of_statement: Mapping[str, str]) -> IndexedColumn:
    name = ".".join(column.path)
    own = _lower(column.options, f"column {name!r}")
    key = own.pop(_KEY, None)
    known = {option.lower(): option for option in kind.option_names}
    options: dict[str, str] = {}
    for option, value in (dict(of_statement) | own).items():
        if option not in known:
            raise DefinitionError(
                f"column {name!r}: there is no option {option!r}; a {kind.name} index has "
                f"{', '.join(sorted(known)) or 'none'}; the column of a map has {_KEY}; the statement has {_BUILD}"
            )
        options[known[option]] = value
    return IndexedColumn(name if key is None else f"{name}{SEPARATOR}{key}", {kind.name: options})


def _lower(options: Mapping[str, str], place: str) -> dict[str, str]:
    """Return options with their names in small letters."""
    found: dict[str, str] = {}
    for option, value in options.items():
        if found.setdefault(option.lower(), value) != value:
            raise DefinitionError(f"{place} has option {option.lower()!r} twice")
    return found
