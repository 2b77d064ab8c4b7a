"""Random logs whose true history is known: the walk is right, or says that it cannot tell."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.batches import Record, marker, stored
from tests.unit.replication.resume.two_logs import OURS, Log, pairs, walked

from srm.errors import IntegrityError
from srm.replication.mapping.starts import Start
from srm.replication.resume.source_lookahead import Comparison

BEFORE = 5
"""Target offset at which the walk begins; the records before it are known."""


@dataclass(frozen=True)
class History:
    """What happened: the source as written, where each record was copied to, what is left.

    ``left_out`` are source offsets of records that the target refused.
    ``claims`` are target offsets of our markers between the copies, ``markers`` those left of them.
    """

    source: list[Record]
    copies: dict[int, int]
    source_left: list[Record]
    target_left: list[tuple[int, Record]]
    left_out: list[int]
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


def without_old_tombstones(
    records: list[tuple[int, Record]], upto: int
) -> list[tuple[int, Record]]:
    """Return what the cleaner leaves once delete.retention.ms has passed for some tombstones."""
    last = {record.key: offset for offset, record in records}
    return [(o, r) for o, r in records if o >= upto or r.value is not None or last[r.key] != o]


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
    tombstones: bool = False
    refusals: bool = False


def draw_source(draw: st.DrawFn, kind: Kind) -> list[Record]:
    source, offset = [], 0
    for index in range(draw(st.integers(0, 24))):
        if not kind.dense and not draw(st.integers(0, 3)):
            offset += draw(st.integers(1, 3))
        key = b"k%d" % draw(st.integers(0, 3)) if kind.keyed else None
        value: bytes | None = b"v%d" % draw(st.integers(0, kind.values - 1))
        if kind.tombstones and not draw(st.integers(0, 2)):
            value = None
        time = 1000 + (draw(st.integers(0, kind.times - 1)) if kind.times else index)
        source.append(Record(offset, time, key, value))
        offset += 1
    return source


def cleaned(
    draw: st.DrawFn, records: list[tuple[int, Record]], begin: int, end: int, kind: Kind
) -> tuple[list[tuple[int, Record]], int]:
    """Compact a log up to some offset, which is returned, too."""
    upto = draw(st.integers(begin, end))
    records = newest(records, upto)
    if kind.tombstones:
        records = without_old_tombstones(records, draw(st.integers(begin, upto)))
    return records, upto


@st.composite
def histories(draw: st.DrawFn, kind: Kind) -> History:
    source = draw_source(draw, kind)
    source_end = source[-1].offset + 1 if source else 0
    # Compacted before it was copied, copied, then compacted again.
    left = [(record.offset, record) for record in source]
    if kind.source_compacted and draw(st.booleans()):
        left = newest(left, draw(st.integers(0, source_end)))
    target_at, copies, claims, target, left_out = BEFORE, {}, [], [], []
    for offset, record in left[: draw(st.integers(0, len(left)))]:
        if kind.refusals and not draw(st.integers(0, 5)):
            left_out.append(offset)
            continue
        if not draw(st.integers(0, 5)):
            claims.append(target_at)
            target_at += 1
        copies[target_at] = offset
        target.append((target_at, replace(record, offset=target_at)))
        target_at += 1
    source_start, target_start, markers = 0, BEFORE, claims
    if kind.source_compacted:
        left, _ = cleaned(draw, left, 0, source_end, kind)
    if kind.source_trimmed:
        source_start = draw(st.integers(0, source_end))
    if kind.target_compacted:
        target, upto = cleaned(draw, target, BEFORE, target_at, kind)
        markers = [at for at in markers if at >= upto or draw(st.booleans())]
    if kind.target_trimmed:
        target_start = draw(st.integers(BEFORE, target_at))
    return History(
        source,
        copies,
        [record for offset, record in left if offset >= source_start],
        [(offset, record) for offset, record in target if offset >= target_start],
        left_out,
        claims,
        [at for at in markers if at >= target_start],
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


def numbered(history: History, at: int, raw: bytes) -> bytes:
    """Give a batch on the target its epoch and sequence number; the first claim began before."""
    before = [claim for claim in history.claims if claim < at]
    first = before[-1] if before else 0
    sequence = sum(first < copy < at for copy in history.copies) + (0 if before else 1000)
    return raw[:51] + struct.pack(">hi", len(before), sequence) + raw[57:]


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
    target = [(at, numbered(history, at, raw)) for at, raw in target]
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
    for offset in left.keys() - set(history.left_out):
        if truly <= offset < found_next:
            # Never copied: right only if an equal record of its key stands there in its place. That
            # one's own record may be there still, if another equal one stands for it, and so on:
            # the last of them has to be one that the source itself has removed.
            standing = {s: history.copies[t] for t, s in mapped.items()}
            own = standing.get(offset)
            while own in left:
                own = standing.get(own)
            if own is None or own < history.source_start:
                return f"source {offset} was never copied"
        copies = [t for t, s in history.copies.items() if s == offset]
        if found_next <= offset < truly and copies[0] in on_target:
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
        start = start or Start(0, BEFORE, frozenset({OURS}))
        left_out = [(offset, offset + 1) for offset in history.left_out]
        found = walked(*logs, start, Comparison(left_out=left_out))
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
    "equal records, some of them refused": Kind(values=1, times=1, refusals=True),
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
        tombstones=st.booleans(),
        refusals=st.booleans(),
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
