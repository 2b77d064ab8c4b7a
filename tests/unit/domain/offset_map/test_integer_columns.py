"""Columns of numbers survive their encoding; damage is named and allocates nothing."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from srm.domain.offset_map import varints
from srm.errors import IntegrityError

numbers = st.integers(0, 3) | st.integers(0, 300) | st.integers(0, 2 * varints.LARGEST + 1)
stretches = st.lists(
    st.tuples(numbers, st.integers(1, 20)).map(lambda s: [s[0]] * s[1]), max_size=12
)
tables = st.lists(stretches.map(lambda parts: [*chain(*parts)]), max_size=4)


@given(tables)
def test_columns_survive_a_round_trip(table: list[list[int]]) -> None:
    data = varints.encode_columns(np.array(column, np.int64) for column in table)

    found = varints.decode_columns(data, [len(column) for column in table])

    assert [column.tolist() for column in found] == table


@given(st.lists(st.integers(-varints.LARGEST, varints.LARGEST)))
def test_folded_numbers_are_not_negative_and_unfold(values: list[int]) -> None:
    array = np.array(values, np.int64)

    assert (varints.fold(array) >= 0).all()
    assert varints.unfold(varints.fold(array)).tolist() == values


@given(st.lists(numbers))
def test_numbers_survive_a_round_trip(values: list[int]) -> None:
    assert varints.decode(varints.encode(np.array(values, np.int64))).tolist() == values


def test_a_number_that_cannot_be_written_is_refused() -> None:
    for number in (-1, -(2**62)):
        with pytest.raises(ValueError, match="negative"):
            varints.encode_columns([np.array([number])])


@given(st.binary(max_size=60), st.lists(st.integers(0, 2**16), max_size=4))
def test_foreign_bytes_are_columns_of_these_sizes_or_an_integrity_error(
    data: bytes, sizes: list[int]
) -> None:
    try:
        found = varints.decode_columns(data, sizes)
    except IntegrityError:
        return

    assert [len(column) for column in found] == sizes


@given(tables, st.data())
def test_columns_that_are_cut_or_too_long_are_an_integrity_error(
    table: list[list[int]], data: st.DataObject
) -> None:
    encoded = varints.encode_columns(np.array(column, np.int64) for column in table)
    sizes = [len(column) for column in table]

    with pytest.raises(IntegrityError):
        varints.decode_columns(encoded + b"\x01", sizes)
    if encoded:
        with pytest.raises(IntegrityError):
            varints.decode_columns(encoded[: data.draw(st.integers(0, len(encoded) - 1))], sizes)


@pytest.mark.parametrize(
    ("first", "steps"), [(-1, [0]), (0, [2**62, 2**62, 2**62]), (5, [-6, 9]), (2**63 - 1, [1])]
)
def test_totals_that_no_offset_reaches_are_an_integrity_error(first: int, steps: list[int]) -> None:
    with pytest.raises(IntegrityError):
        varints.running_total(first, np.array(steps, np.int64))
