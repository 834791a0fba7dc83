"""Names of indexes. A name stands for some indexes, each a (field id, stored kind) of the definition.

Statements such as `CREATE INDEX` give names. An index without a given name has a derived one, `<column>_<kind>`. Names
lie in an index-table property of their own, so that releases without names read the definition as before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count

from puffin_index.definition import index_definition
from puffin_index.definition.index_definition import ResolvedColumn, StoredColumn
from puffin_index.errors import DefinitionError, IndexExistsError, NotFoundError
from puffin_index.keys.map_key import FieldKind, column_of_details, details_of, field_of, index_of, split_kind

_NO_IDENTIFIER = re.compile(r"\W+")
_MARK = re.compile("#[kc]#")


@dataclass(frozen=True, slots=True)
class NamedIndex:
    """A name, given by a statement or derived, and the (field id, stored kind) pairs that it stands for."""

    name: str
    indexes: frozenset[FieldKind]
    is_given: bool = True


@dataclass(frozen=True, slots=True)
class StoredDefinition:
    """A definition and given names as the index table has them, as JSON, and columns that the data table defines."""

    definition: str
    names: str | None = None
    from_properties: tuple[ResolvedColumn, ...] = ()

    @property
    def kinds(self) -> frozenset[FieldKind]:
        """All indexes, those of properties included."""
        return frozenset(self._columns())

    @property
    def all_names(self) -> tuple[NamedIndex, ...]:
        """The given names in the order of their creation, then the derived ones in the order of field ids."""
        columns = self._columns()
        given = self._given
        taken = {one.name.casefold() for one in given}
        derived: list[NamedIndex] = []
        for index in sorted(columns.keys() - {index for one in given for index in one.indexes}):
            name = derived_name(columns[index], split_kind(*index)[1])
            numbered = chain([name], (f"{name}_{number}" for number in count(2)))
            name = next(one for one in numbered if one.casefold() not in taken)
            taken.add(name.casefold())
            derived.append(NamedIndex(name, frozenset([index]), is_given=False))
        return (*given, *derived)

    def describe(self, named: NamedIndex) -> str:
        """Return a name with its kinds and columns, as text."""
        columns = self._columns()
        indexes = (f"{split_kind(*index)[1]} of {columns[index]}" for index in sorted(named.indexes))
        return f"{named.name} ({', '.join(indexes)})"

    def find(self, name: str) -> NamedIndex:
        """Find an index by its name, in capitals or not, or raise NotFoundError if no index has the name."""
        for one in self.all_names:
            if one.name.casefold() == name.casefold():
                return one
        raise NotFoundError(f"there is no index {name!r}; there are: {self._describe_all()}")

    def with_index(self, name: str, columns: Sequence[ResolvedColumn]) -> StoredDefinition:
        """Add an index of a free name; indexes that exist keep their options if none are given.

        Raises IndexExistsError if another index has the name, DefinitionError if an index exists with other options.
        """
        taken = next((one for one in self.all_names if one.name.casefold() == name.casefold()), None)
        if taken is not None:
            raise IndexExistsError(f"there is an index {name!r} already; there are: {self._describe_all()}")
        known = index_definition.stored_kinds(self.definition)
        for column in columns:
            for kind, options in column.kinds.items():
                index = index_of(column.column_id, kind)
                found = known.get(index, options)
                if options and found != options:
                    holders = ", ".join(one.name for one in self.all_names if index in one.indexes)
                    raise DefinitionError(
                        f"column {column.name!r} has a {kind} index with {_options_text(found)} already ({holders}): "
                        "drop it first"
                    )
        given = (*self._given, NamedIndex(name, frozenset(index_definition.indexes_of(columns))))
        return replace(self.with_kinds(columns), names=_to_json(given))

    def with_kinds(self, columns: Sequence[ResolvedColumn]) -> StoredDefinition:
        """Add kinds; a kind that is there already gets the new options, if any are given."""
        stored = {one.column_id: one for one in index_definition.stored_columns(self.definition)}
        for column in columns:
            known = stored[column.column_id].kinds if column.column_id in stored else {}
            new = {kind: options for kind, options in column.kinds.items() if options or kind not in known}
            stored[column.column_id] = StoredColumn(column.column_id, column.name, {**known, **new})
        return replace(self, definition=index_definition.to_json(stored.values()))

    def without_kinds(self, columns: Sequence[ResolvedColumn]) -> StoredDefinition:
        """Take kinds away, or raise DefinitionError if the definition lacks one, or nothing would be left."""
        stored = index_definition.stored_columns(self.definition)
        for column in columns:
            for kind in column.kinds:
                if index_of(column.column_id, kind) not in index_definition.indexes_of(stored):
                    there = "; ".join(f"{one.name}: {', '.join(sorted(one.kinds))}" for one in stored)
                    reason = f"column {column.name!r} has no {kind} to remove; the definition has {there}"
                    raise DefinitionError(reason)
        left = index_definition.without_indexes(stored, index_definition.indexes_of(columns))
        if not left:
            raise DefinitionError("nothing of the definition would be left: `puffin-index drop` drops the index")
        return replace(self, definition=index_definition.to_json(left))

    def losses(self, columns: Sequence[ResolvedColumn]) -> list[str]:
        """Return what a new definition takes away from this one, kind by kind, as text."""
        wanted = index_definition.indexes_of(columns)
        names = self._columns()
        lost: list[str] = []
        for index, options in index_definition.stored_kinds(self.definition).items():
            described = f"{split_kind(*index)[1]} of {names[index]}"
            if index not in wanted:
                lost.append(described)
            elif wanted[index] != options:
                before, after = _options_text(options), _options_text(wanted[index])
                lost.append(f"the options of {described} ({before}; now {after})")
        return lost

    def without_index(self, name: str) -> StoredDefinition:
        """Take an index away, as far as no other given name stands for it.

        Raises NotFoundError if no index has the name, DefinitionError if properties of the data table define it.
        """
        named = self.find(name)
        others = tuple(one for one in self._given if one != named)
        gone = named.indexes - {index for one in others for index in one.indexes}
        fixed = sorted(gone & index_definition.indexes_of(self.from_properties).keys())
        if fixed:
            column, kind = self._columns()[fixed[0]], split_kind(*fixed[0])[1]
            raise DefinitionError(
                f"properties of the table (`file-index.*.columns`) define the {kind} index of column {column!r}: "
                "take the column out of these properties first"
            )
        left = index_definition.without_indexes(index_definition.stored_columns(self.definition), gone)
        return replace(self, definition=index_definition.to_json(left), names=_to_json(others))

    @property
    def _given(self) -> tuple[NamedIndex, ...]:
        """Return the given names of indexes that exist; another `create` may have replaced the definition."""
        existing = self._columns()
        given: list[NamedIndex] = []
        for item in json.loads(self.names or "[]"):
            indexes = {index_of(column_of_details(one), one["kind"]) for one in item["indexes"]}
            found = frozenset(indexes & existing.keys())
            if found:
                given.append(NamedIndex(item["name"], found))
        return tuple(given)

    def _columns(self) -> dict[FieldKind, str]:
        """Return all indexes with the names of their columns, as far as known the current ones."""
        stored = {column.column_id: column.name for column in index_definition.stored_columns(self.definition)}
        names = stored | {column.column_id: column.name for column in self.from_properties}
        every = index_definition.stored_kinds(self.definition) | index_definition.indexes_of(self.from_properties)
        return {index: names[split_kind(*index)[0]] for index in every}

    def _describe_all(self) -> str:
        return "; ".join(self.describe(one) for one in self.all_names) or "none"


def derived_name(column: str, kind: str) -> str:
    """Return the name of an index that no statement named: column and kind, in letters that SQL takes unquoted."""
    return f"{_NO_IDENTIFIER.sub('_', _MARK.sub('_', column))}_{kind}"


def _options_text(options: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(options.items())) or "no options"


def _to_json(names: Sequence[NamedIndex]) -> str:
    return json.dumps([{"name": one.name, "indexes": list(map(_index_item, sorted(one.indexes)))} for one in names])


def _index_item(index: FieldKind) -> dict[str, object]:
    column, kind = split_kind(*index)
    return {"field-id": field_of(column), "kind": kind} | details_of(column)
