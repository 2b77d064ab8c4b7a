"""Random logs whose true history is known: the walk is right, or says that it cannot tell."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.batches import Record, marker, stored
from tests.unit.replication.slot.test_walk import OURS, Log, pairs, walked

from srm.errors import IntegrityError
from srm.replication.slot.resume import Start
from srm.replication.slot.source_ahead import Comparison

BEFORE = 5
"""Target offset at which the walk begins; the records before it are known."""


@dataclass(frozen=True)
class History:
    """What happened: the source as written, where each record was copied to, what is left.

    ``claims`` are target offsets of our markers between the copies, ``markers`` those left of them.
    """

    source: list[Record]
    copies: dict[int, int]
    source_left: list[Record]
    target_left: list[tuple[int, Record]]
    claims: list[int]
    markers: list[int]
    source_start: int
    target_start: int
    target_end: int
    source_end: int

    @property
    def source_by_offset(self) -> dict[int, Record]:
        return {record.offset: record for record in self.source}

    @property
    def true_position(self) -> int:
        return max(self.copies.values(), default=-1) + 1


def newest(records: list[tuple[int, Record]], upto: int) -> list[tuple[int, Record]]:
    """Return what a cleaner leaves: before an offset, the newest record of each key."""
    last = {record.key: offset for offset, record in records}
    return [(o, r) for o, r in records if o >= upto or r.key is None or last[r.key] == o]


@dataclass(frozen=True)
class Kind:
    """What may have happened to the logs; ``times`` different times of records."""

    keyed: bool = True
    values: int = 2
    times: int = 2
    dense: bool = True
    source_compacted: bool = False
    target_compacted: bool = False
    source_trimmed: bool = False
    target_trimmed: bool = False
    log_append_time: bool = False


@st.composite
def histories(draw: st.DrawFn, kind: Kind) -> History:
    count = draw(st.integers(0, 24))
    source, offset = [], 0
    for index in range(count):
        if not kind.dense and not draw(st.integers(0, 3)):
            offset += draw(st.integers(1, 3))
        key = b"k%d" % draw(st.integers(0, 3)) if kind.keyed else None
        value = b"v%d" % draw(st.integers(0, kind.values - 1))
        time = 1000 + (draw(st.integers(0, kind.times - 1)) if kind.times else index)
        source.append(Record(offset, time, key, value))
        offset += 1
    source_end = offset
    # Compacted before it was copied, copied, then compacted again.
    at_copy = source
    if kind.source_compacted and draw(st.booleans()):
        upto = draw(st.integers(0, source_end))
        at_copy = [r for _, r in newest([(r.offset, r) for r in source], upto)]
    copied = at_copy[: draw(st.integers(0, len(at_copy)))]
    target_at, copies, markers, target = BEFORE, {}, [], []
    for record in copied:
        if not draw(st.integers(0, 5)):
            markers.append(target_at)
            target_at += 1
        copies[target_at] = record.offset
        target.append((target_at, replace(record, offset=target_at)))
        target_at += 1
    left, claims = [(r.offset, r) for r in at_copy], markers
    source_start = 0
    if kind.source_compacted:
        left = newest(left, draw(st.integers(0, source_end)))
    if kind.source_trimmed:
        source_start = draw(st.integers(0, source_end))
        left = [(o, r) for o, r in left if o >= source_start]
    target_start = BEFORE
    if kind.target_compacted:
        upto = draw(st.integers(BEFORE, target_at))
        target = newest(target, upto)
        markers = [at for at in markers if at >= upto or draw(st.booleans())]
    if kind.target_trimmed:
        target_start = draw(st.integers(BEFORE, target_at))
        target = [(o, r) for o, r in target if o >= target_start]
        markers = [at for at in markers if at >= target_start]
    return History(
        source,
        copies,
        [r for _, r in left],
        target,
        claims,
        markers,
        source_start,
        target_start,
        target_at,
        source_end,
    )


def batched(
    records: list[tuple[int, Record]], sizes: list[int], breaks: list[int], producer_id: int = -1
) -> list[tuple[int, bytes]]:
    """Cut records into batches, and before every break."""
    found: list[tuple[int, bytes]] = []
    part: list[Record] = []
    for index, (offset, record) in enumerate(records):
        size = sizes[index % len(sizes)]
        if part and (len(part) >= size or any(part[-1].offset < at < offset for at in breaks)):
            found.append((part[0].offset, stored(part, producer_id=producer_id)))
            part = []
        part.append(record)
    if part:
        found.append((part[0].offset, stored(part, producer_id=producer_id)))
    return found


def logs_of(
    history: History, sizes: list[int], *, log_append_time: bool, joined: bool
) -> tuple[Log, Log]:
    source = batched([(r.offset, r) for r in history.source_left], sizes, [])
    target = batched(
        history.target_left,
        sizes[::-1],
        history.claims if joined else list(range(history.target_end)),
        OURS,
    )
    if log_append_time:
        target = [(at, raw[:22] + bytes([raw[22] | 8]) + raw[23:]) for at, raw in target]
    target += [(at, marker(at, OURS, 2)) for at in history.markers]
    target.append((history.target_end, marker(history.target_end, OURS, 3)))
    return (
        Log(
            [*(raw for _, raw in source), marker(history.source_end, 99)],
            history.source_start,
        ),
        Log([raw for _, raw in sorted(target)], history.target_start),
    )


def is_right(history: History, found_next: int, mapped: dict[int, int], kind: Kind) -> str:
    """Return what is wrong with a decided position, by what the logs hold now."""

    def content(record: Record) -> tuple[object, ...]:
        time = None if kind.log_append_time else record.timestamp
        return record.key, record.value, time

    left = {record.offset: record for record in history.source_left}
    on_target = dict(history.target_left)
    for target, source in mapped.items():
        if content(left.get(source, history.source_by_offset[source])) != content(
            on_target[target]
        ):
            return f"target {target} is mapped to {source}, which differs"
    truly = history.true_position
    for offset in left:
        if truly <= offset < found_next:
            # Never copied: right only if an equal record of its key stands there in its place,
            # whose own one compaction has removed from the source.
            places = [t for t, s in mapped.items() if s == offset]
            if not places or history.copies[places[0]] in left or not kind.source_compacted:
                return f"source {offset} was never copied"
            if history.copies[places[0]] < history.source_start:
                return f"source {offset} was never copied, an older one was"
        if found_next <= offset < truly:
            copy = next(t for t, s in history.copies.items() if s == offset)
            if copy in on_target:
                return f"source {offset} would be copied again"
    return ""


sizes = st.lists(st.integers(1, 7), min_size=1, max_size=4)
RELAXED = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=60)


def outcome(
    history: History,
    kind: Kind,
    batch_sizes: list[int],
    *,
    joined: bool,
    start: Start | None = None,
) -> str:
    """Walk; return "", "undecidable", or what is wrong."""
    logs = logs_of(history, batch_sizes, log_append_time=kind.log_append_time, joined=joined)
    try:
        found = walked(*logs, start or Start(0, BEFORE, frozenset({OURS})), Comparison())
    except IntegrityError as error:
        return f"undecidable: {error}"
    assert found.target_next == history.target_end + 1
    return is_right(history, found.source_next, pairs(found), kind)


ORDINARY = {
    "constant records": Kind(keyed=False, values=1, times=1),
    "constant records, the target gives its own time": Kind(
        keyed=False, values=1, times=0, log_append_time=True
    ),
    "equal records with keys, transactions between": Kind(dense=False, values=1, times=1),
    "a target whose log begins later, distinct times": Kind(times=0, target_trimmed=True),
    "a source whose log begins later, distinct times": Kind(times=0, source_trimmed=True),
    "a compacted source, distinct times": Kind(times=0, source_compacted=True),
    "a compacted target, distinct times": Kind(times=0, target_compacted=True),
    "both compacted, distinct times": Kind(
        times=0, source_compacted=True, target_compacted=True, dense=False
    ),
}


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_logs_are_always_decided(name: str) -> None:
    kind = ORDINARY[name]

    @RELAXED
    @given(histories(kind), sizes, st.booleans())
    def check(history: History, batch_sizes: list[int], joined: bool) -> None:
        assert outcome(history, kind, batch_sizes, joined=joined) == ""

    check()


@pytest.mark.parametrize("name", list(ORDINARY)[:3])
def test_a_crash_in_the_first_second_of_a_new_partition_is_decided(name: str) -> None:
    """Nothing is known of the copy yet, and the target may have held another one before."""
    kind = ORDINARY[name]

    @RELAXED
    @given(histories(kind), sizes)
    def check(history: History, batch_sizes: list[int]) -> None:
        start = Start(0, BEFORE, frozenset({OURS}), fresh=True)
        assert outcome(history, kind, batch_sizes, joined=False, start=start) == ""

    check()


@RELAXED
@given(
    st.data(),
    st.builds(
        Kind,
        keyed=st.booleans(),
        values=st.integers(1, 3),
        times=st.integers(0, 3),
        dense=st.booleans(),
        source_compacted=st.booleans(),
        target_compacted=st.booleans(),
        source_trimmed=st.booleans(),
        target_trimmed=st.booleans(),
        log_append_time=st.booleans(),
    ),
    sizes,
    st.booleans(),
)
def test_whatever_became_of_the_logs_a_position_that_is_given_is_right(
    data: st.DataObject, kind: Kind, batch_sizes: list[int], joined: bool
) -> None:
    history = data.draw(histories(kind))

    found = outcome(history, kind, batch_sizes, joined=joined)

    assert not found or found.startswith("undecidable")
