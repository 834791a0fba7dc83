"""What kinds tell of the keys of a row set equals what the values themselves tell, row by row."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import given, settings, strategies as st
from pyroaring import BitMap

from puffin_index.errors import CorruptFileError, UnsupportedError
from puffin_index.keys.leaf import Key
from puffin_index.keys.value_types import ValueType
from puffin_index.kinds.held_keys import HoldsKeys, KeySets, Totals, Want
from puffin_index.kinds.registry import KINDS
from puffin_index.storage.ranged import run
from tests.conftest import amount
from tests.puffin_index.kinds.columns import keys_of, sample_of
from tests.puffin_index.kinds.merged_sample import (
    POSTINGS_OPTIONS,
    Group,
    Piece,
    merged,
    placed,
    row_group_lists,
    segment,
)
from tests.puffin_index.kinds.test_bad_bytes import flips
from tests.puffin_index.kinds.test_merging import EXACT_BUILDS


def holder(piece: Piece, data: bytes | None = None) -> HoldsKeys:
    index, _ = piece.opened(data)
    assert isinstance(index, HoldsKeys)
    return index


def first_row(piece: Piece, group: Group) -> int:
    """The number of a row group's first row in the answers of a payload."""
    single_types = {name for kind in KINDS.values() for name in kind.blob_types}
    return 0 if piece.payload.blob_type in single_types and len(piece.groups) == 1 else group.base


def number_of(key: Key, value_type: ValueType) -> int:
    if isinstance(key, bytes):
        return int.from_bytes(key, "big") - 2**127 if value_type.is_decimal else 0
    return key


def expected_totals(keys: Sequence[Key | None], value_type: ValueType) -> Totals:
    known: list[Key] = [key for key in keys if key is not None]
    numbers = [number_of(key, value_type) for key in known]
    return Totals(
        len(known),
        sum(number for number in numbers if number > 0),
        sum(number for number in numbers if number < 0),
        min(known, default=None),
        max(known, default=None),
    )


def check(piece: Piece, rows: BitMap, keys: Sequence[Key | None]) -> None:
    index = holder(piece)
    assert keys_of(run(index.keys_of(rows))) == keys
    counted = run(index.counts_of(rows))
    found = counted.keys.tolist() if counted.value_type.domain == "int64" else counted.keys.to_pylist()
    expected = Counter(keys)
    assert counted.null_count == expected.pop(None, 0)
    assert list(zip(found, counted.counts.tolist(), strict=True)) == sorted(expected.items())
    distinct, value_count = run(index.distinct_of(rows))
    assert (list(distinct), value_count) == (list(counted.keys), int(counted.counts.sum()))
    sets = run(index.sets_of())
    number = {row: place for place, row in enumerate(rows)}
    if sets is not None:
        check_sets(sets, rows, keys, number)
    groups = [BitMap([row]) for row in number] if len(number) < 5 else [BitMap(list(number)[at::3]) for at in range(3)]
    for want in (Want.ALL, Want.SUMS, Want.ENDS, Want(0)):
        (whole,) = run(holder(piece).totals_of_each([rows], want))
        check_totals(whole, keys, counted.value_type, want)
        for own, totals in zip(groups, run(index.totals_of_each(groups, want)), strict=True):
            check_totals(totals, [keys[number[row]] for row in own], counted.value_type, want)


def check_totals(found: Totals, keys: Sequence[Key | None], value_type: ValueType, want: Want = Want.ALL) -> None:
    expected = expected_totals(keys, value_type)
    if Want.ENDS not in want:
        expected = replace(expected, minimum=found.minimum, maximum=found.maximum)
    if Want.SUMS not in want or (value_type.name not in ("int", "long") and not value_type.is_decimal):
        # Sums of other types mean nothing.
        expected = replace(expected, positive=found.positive, negative=found.negative)
    assert found == expected


def check_sets(sets: KeySets, rows: BitMap, keys: Sequence[Key | None], number: dict[int, int]) -> None:
    own_keys = sets.keys.tolist() if sets.value_type.domain == "int64" else sets.keys.to_pylist()
    found = {row: key for key, own in zip(own_keys, sets.rows, strict=True) for row in own}
    found |= dict.fromkeys(sets.nulls)
    assert len(found) == sum(map(len, sets.rows)) + len(sets.nulls)
    assert {number[row]: found[row] for row in rows} == dict(enumerate(keys))


@pytest.mark.parametrize("is_merged", [False, True])
@pytest.mark.parametrize(("kind", "options"), EXACT_BUILDS)
@settings(max_examples=amount(8, 150), deadline=None)
@given(st.data())
def test_keys_and_totals_are_the_rows(kind: str, options: dict[str, str], is_merged: bool, data: st.DataObject) -> None:
    groups = placed(data.draw(row_group_lists()))
    pieces = segment(kind, options, groups)
    for piece in merged([pieces]) if is_merged else pieces:
        keys = {
            first_row(piece, group) + row: key for group in piece.groups for row, key in enumerate(group.sample.keys)
        }
        chosen = sorted(data.draw(st.sets(st.sampled_from(sorted(keys)), max_size=20)))
        all_but = sorted(keys.keys() - set(chosen))
        assert keys_of(run(holder(piece).keys_of(None))) == list(keys.values())
        with patch("puffin_index.kinds.held_keys._FEW_KEYS", data.draw(st.sampled_from([0, 8, 100]))):
            check(piece, BitMap(keys), list(keys.values()))
            check(piece, BitMap(chosen), [keys[row] for row in chosen])
            check(piece, BitMap(all_but), [keys[row] for row in all_but])


@pytest.mark.parametrize(("kind", "options"), [("bitmap", {}), ("bitmap", POSTINGS_OPTIONS), ("bsi", {})])
@pytest.mark.parametrize("is_merged", [False, True])
@pytest.mark.parametrize("type_name", ["long", "string"])
def test_damage_is_told_or_changes_nothing(kind: str, options: dict[str, str], is_merged: bool, type_name: str) -> None:
    values = [n * n % 7 for n in range(40)] if type_name == "long" else [f"v{n % 7}" for n in range(40)]
    pieces = segment(kind, options, placed([sample_of([*values, None, None], type_name)]))
    (piece,) = merged([pieces]) if is_merged else pieces
    keys = keys_of(run(holder(piece).keys_of(None)))
    first = first_row(piece, piece.groups[0])
    every, places = BitMap(range(first, first + 42)), [first + place for place in range(0, 42, 5)]
    for damaged in flips(bytes(piece.payload.data)):
        try:
            found = keys_of(run(holder(piece, damaged).keys_of(None)))
            totals = run(holder(piece, damaged).totals_of_each([every]))
            few = keys_of(run(holder(piece, damaged).keys_of(BitMap(places))))
        except (CorruptFileError, UnsupportedError):
            continue
        assert found == keys
        assert few == [keys[place] for place in range(0, 42, 5)]
        assert totals == run(holder(piece).totals_of_each([every]))


def test_only_kinds_with_few_keys_give_their_row_sets() -> None:
    few, many = sample_of([n % 3 for n in range(100)] + [None], "long"), sample_of(list(range(100)), "long")
    for kind, options in (("bitmap", {}), ("bsi", {})):
        (piece,) = segment(kind, options, placed([few]))
        sets = run(holder(piece).sets_of())
        assert sets is not None
        assert sets.keys.tolist() == [0, 1, 2]
        assert [list(rows)[:2] for rows in (*sets.rows, sets.nulls)] == [[0, 3], [1, 4], [2, 5], [100]]
        (piece,) = segment(kind, options, placed([many]))
        assert run(holder(piece).sets_of()) is None


def test_row_sets_that_overlap_are_damage() -> None:
    (piece,) = segment("bitmap", {}, placed([sample_of([0, 0, 1, 1, 1], "long")]))
    data = bytes(piece.payload.data)
    # The set of key 1 gets row 0, a row of key 0, in place of row 2; the seal of the set becomes that of the new bytes.
    damaged = data.replace(BitMap([2, 3, 4]).serialize(), BitMap([0, 3, 4]).serialize())
    assert damaged != data
    with pytest.raises(CorruptFileError):
        run(holder(piece, damaged).sets_of())
