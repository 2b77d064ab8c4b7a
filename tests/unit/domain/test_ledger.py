"""The ledger's records, and which offsets count as our own writes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srm.domain.ledger import Ledger, LedgerEntry, ledger_key
from srm.domain.topics import TopicPartition
from srm.errors import IntegrityError

T0 = TopicPartition("Payments", 0)
names = st.text(max_size=30)
offsets = st.integers(0, 2**63 - 1)
entries = st.builds(
    LedgerEntry,
    group=names,
    topic_partition=st.builds(TopicPartition, names, st.integers(0, 2**31 - 1)),
    previous=st.none() | offsets,
    intended=offsets,
    origin=names,
    operation=names,
    time_ms=offsets,
    previous_own=st.booleans(),
    settled=st.booleans(),
)


@given(entries)
def test_entries_survive_a_round_trip(entry: LedgerEntry) -> None:
    assert LedgerEntry.decode(entry.key(), entry.value()) == entry
    assert entry.key() == ledger_key(entry.group, entry.topic_partition)


@given(st.lists(entries, max_size=8))
def test_the_topic_as_a_table_finds_each_entry_again(written: list[LedgerEntry]) -> None:
    records = {entry.key(): entry.value() for entry in written}
    latest = {(entry.group, entry.topic_partition): entry for entry in written}

    ledger = Ledger.of(records)

    assert all(ledger.entry(*place) == entry for place, entry in latest.items())
    assert Ledger().entry("g", T0) is None


@pytest.mark.parametrize(
    ("settled", "previous_own", "own", "lowerable"),
    [
        (False, False, {100, 150}, {150}),
        (False, True, {100, 150}, {100, 150}),
        (True, False, {150}, {150}),
        (True, True, {150}, {150}),
    ],
)
def test_what_counts_as_our_own_write(
    settled: bool, previous_own: bool, own: set[int], lowerable: set[int]
) -> None:
    entry = LedgerEntry("g", T0, 100, 150, "P", "sync", 1, previous_own, settled)

    assert {offset for offset in range(200) if entry.owns(offset)} == own
    assert {offset for offset in range(200) if entry.may_lower(offset)} == lowerable


def test_fields_of_a_later_version_are_passed_over() -> None:
    entry = LedgerEntry("g", T0, None, 150, "P", "sync", 1)

    assert LedgerEntry.decode(entry.key(), entry.value()[:-1] + b',"more":1}') == entry


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"[]", b"{}"),
        (b'["g","t",0]', b"{}"),
        (b'["g","t",0]', b"7"),
        (b"\xff", b"{}"),
        (b'["g",1,0]', LedgerEntry("g", T0, 1, 2, "P", "s", 3).value()),
    ],
)
def test_a_damaged_record_is_an_integrity_error_that_names_it(key: bytes, value: bytes) -> None:
    with pytest.raises(IntegrityError, match="ledger record with key"):
        LedgerEntry.decode(key, value)


def test_a_damaged_record_stops_only_whoever_asks_for_it() -> None:
    good = LedgerEntry("g", T0, None, 150, "P", "sync", 1)
    ledger = Ledger.of({good.key(): good.value(), ledger_key("other", T0): b"7", b"[]": b"{}"})

    assert ledger.entry("g", T0) == good
    with pytest.raises(IntegrityError, match="other"):
        ledger.entry("other", T0)
