"""The ledger's records, and which offsets count as our own writes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srm.domain.groups.group_sync import GroupLedger, LedgerEntry, all_entries, ledger_key
from srm.domain.names.topics import TopicPartition
from srm.errors import IntegrityError

T0 = TopicPartition("Payments", 0)
names = st.text(max_size=30)
offsets = st.integers(0, 2**63 - 1)
entries = st.builds(
    LedgerEntry,
    group=names,
    topic_partition=st.builds(TopicPartition, names, st.integers(0, 2**31 - 1)),
    topic_id=names,
    previous=st.none() | offsets,
    intended=offsets,
    origin=names,
    operation=names,
    previous_own=st.booleans(),
    settled=st.booleans(),
    time_ms=offsets,
    progress=st.dictionaries(names, offsets, max_size=3),
)


def ledger(*written: LedgerEntry, topic_ids: dict[str, str]) -> GroupLedger:
    return GroupLedger({entry.key(): (entry.value(), 0) for entry in written}, topic_ids)


@given(entries)
def test_entries_survive_a_round_trip(entry: LedgerEntry) -> None:
    assert LedgerEntry.decode(entry.key(), entry.value()) == entry
    place = entry.topic_partition
    assert entry.key() == ledger_key(entry.group, place)
    named = [entry.group, place.topic, place.partition]
    assert entry.key() == json.dumps(named, separators=(",", ":")).encode()


@given(st.lists(entries, max_size=8), st.dictionaries(names, names))
def test_entries_of_the_topics_that_exist_are_found_and_no_others(
    written: list[LedgerEntry], topic_ids: dict[str, str]
) -> None:
    latest = {(entry.group, entry.topic_partition): entry for entry in written}
    topic_ids |= {e.topic_partition.topic: e.topic_id for e in written[: len(written) // 2]}
    found = ledger(*written, topic_ids=topic_ids)
    counting = {
        place: entry
        for place, entry in latest.items()
        if entry.topic_id == topic_ids.get(entry.topic_partition.topic, "")
    }

    assert {place: found.entry(*place) for place in latest} == {
        place: counting.get(place) for place in latest
    }
    assert {(e.group, e.topic_partition): e for e in found.entries()} == counting


def test_an_entry_has_the_time_of_its_record_and_keeps_it_when_it_is_put_back() -> None:
    entry = LedgerEntry("g", T0, "id", None, 150, "P", "sync", settled=True)

    read = LedgerEntry.decode(entry.key(), entry.value(), 7000)

    assert read.time_ms == 7000
    assert LedgerEntry.decode(read.key(), read.value(), 9000).time_ms == 7000
    assert LedgerEntry.decode(read.key(), read.as_settled().value(), 9000).time_ms == 9000


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
    entry = LedgerEntry("g", T0, "id", 100, 150, "P", "sync", previous_own, settled)

    assert {offset for offset in range(200) if entry.owns(offset)} == own
    assert {offset for offset in range(200) if entry.may_lower(offset)} == lowerable


def test_fields_of_a_later_version_are_skipped() -> None:
    entry = LedgerEntry("g", T0, "id", None, 150, "P", "sync")

    assert LedgerEntry.decode(entry.key(), entry.value()[:-1] + b',"more":1}') == entry


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"[]", b"{}"),
        (b'["g","t",0]', b"{}"),
        (b'["g","t",0]', b"7"),
        (b"\xff", b"{}"),
        (b'["g",1,0]', LedgerEntry("g", T0, "id", 1, 2, "P", "s").value()),
    ],
)
def test_a_damaged_record_is_an_integrity_error_that_names_it(key: bytes, value: bytes) -> None:
    with pytest.raises(IntegrityError, match="ledger record with key"):
        LedgerEntry.decode(key, value)


def test_a_look_decodes_each_entry_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan reads all entries and then those of its groups: 9,000 of 3,000 groups, twice."""
    good = LedgerEntry("g", T0, "id", None, 150, "P", "sync")
    found, decode = ledger(good, topic_ids={T0.topic: "id"}), LedgerEntry.decode
    decoded: list[bytes] = []
    monkeypatch.setattr(LedgerEntry, "decode", lambda *row: decoded.append(row[0]) or decode(*row))

    assert [*found.entries(), found.entry("g", T0)] == [good, good]
    assert decoded == [good.key()]


def test_a_damaged_record_is_skipped_with_one_line(caplog: pytest.LogCaptureFixture) -> None:
    good = LedgerEntry("g", T0, "id", None, 150, "P", "sync")
    rows = {good.key(): good.value(), ledger_key("other", T0): b"7"}
    found = GroupLedger({key: (value, 0) for key, value in rows.items()}, {T0.topic: "id"})

    assert found.entry("g", T0) == good
    assert found.entry("other", T0) is None
    assert found.entry("other", T0) is None
    assert list(found.entries()) == [good]
    [line] = caplog.messages
    assert "other" in line
    assert list(all_entries(rows)) == [good]
