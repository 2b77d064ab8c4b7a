"""Verdict on a world, from the scenario's actions and not from srm's own reports.

Both logs are one history through the map, and the findings have the names Jepsen gives them:

- *lost write*: a committed record of the source, still there, that the target never got;
- *duplicate*: a record on the target that is the copy of no source record, or of one copied before;
- *inconsistent offsets*: the map pairs offsets that do not hold the same record;
- *aborted read*: a record of an aborted transaction was copied;
- *nonmonotonic*: the copies are not in the order of the source;
- *stuck*: the faults have ended, but a partition is not copied to its end, or a group that has
  read a log to its end cannot leave it. Its commit has passed markers, as a Java consumer's does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from srm.domain.flow_state.replication_records import AssignedPartition
from srm.domain.offset_map.offset_map import NotCopiedYet, OffsetMap
from srm.domain.offset_map.runs import both_ends
from srm.engine.map_reader import KafkaMapReader
from srm_lab.testing.simulation.cluster import Partition
from srm_lab.testing.simulation.log import Batch
from srm_lab.testing.simulation.state import StateCluster

if TYPE_CHECKING:
    from srm_lab.testing.simulation.world import SimulatedWorld

_MAP_LOSSES = ("map lost", "block lost", "last block lost", "index lost")

Content = tuple[int, bytes | None, bytes | None]


@dataclass
class _History:
    """One partition's records on both sides, by offset."""

    source: dict[int, Content] = field(default_factory=dict)
    aborted: dict[int, Content] = field(default_factory=dict)
    target: dict[int, Content] = field(default_factory=dict)
    removed: set[int] = field(default_factory=set)
    forgotten: set[int] = field(default_factory=set)
    cut: list[Content] = field(default_factory=list)
    strays: set[int] = field(default_factory=set)
    with_time: bool = True


def stopped_partitions(world: SimulatedWorld) -> list[str]:
    """Return the partitions that have stopped, with their reasons."""
    return [
        f"{s.topic}-{s.partition}: {s.reason}"
        for s in world.state().statuses
        if s.state == "stopped"
    ]


def check(world: SimulatedWorld) -> list[str]:
    """Return everything that is wrong."""
    sources = StateCluster(world.source)
    reader = KafkaMapReader(world.store.cluster, sources, world.config.flow)
    maps = reader.load(list(world.source.topics))
    positions = world.positions()
    resting = {
        (s.topic, s.partition): s.reason for s in world.state().statuses if s.state == "stopped"
    }
    problems: list[str] = []
    for assigned in world.assignments():
        source = world.source.topics[assigned.topic].partitions[assigned.partition]
        target = world.target.topics[assigned.target_topic].partitions[assigned.partition]
        history = _history(world, source, target)
        where = str(source.place)
        reason = resting.get((assigned.topic, assigned.partition))
        if _is_forged(world, source):
            continue
        if source.place in maps.errors:
            if not _has_contradiction(world, source):
                problems.append(f"{where}: inconsistent offsets: {maps.errors[source.place]}")
            continue
        found = maps.maps.get(source.place, OffsetMap())
        pairs = list(_pairs(found))
        mapped = {s for s, _ in pairs}
        halted = reason is not None and (
            _may_stop(world, assigned, history, mapped) or _says_others(world, target, reason)
        )
        cut_at = source.log.cut_at
        if halted and cut_at is not None:
            # It is halted where the source was truncated, and the map says what was before.
            pairs = [pair for pair in pairs if pair[0] < cut_at]
        excluded = set[int]()
        if halted and history.strays:
            # It is halted before these, and the map says what the target held in their place.
            excluded = {s for s, t in pairs if t >= min(history.strays)}
            pairs = [pair for pair in pairs if pair[0] not in excluded]
        problems += [f"{where}: {text}" for text in _judge_pairs(history, _provable(source, pairs))]
        is_found_again = halted and any(kind in _MAP_LOSSES for _, kind, _ in world.events)
        lost = [
            offset
            for offset in _lost(history, pairs, with_map=not is_found_again)
            if offset not in excluded and not _took_lost_place(world, source, offset)
        ]
        # A batch that went astray into a log that held its records is a second copy of them.
        unclear = bool(history.strays) or _may_be_unclear(world, where)
        may_double = world.scenario.accepts_loss and unclear
        entry = positions[assigned]
        reached = entry.position.source_next if entry else 0
        if halted:
            lost = [o for o in lost if o < reached and (cut_at is None or o < cut_at)]
        elif reached < source.log.last_stable_offset and lost:
            problems.append(f"{where}: stuck at {reached}: {reason or 'no reason given'}")
            lost = [offset for offset in lost if offset < reached]
        if lost:
            problems.append(f"{where}: lost write: {_few(lost)}")
        ends = [] if reason else _judge_ends(found, source, target)
        problems += [f"{where}: stuck: {text}" for text in ends]
        rest = _judge_rest(history, pairs, halted=halted, may_double=may_double)
        problems += [f"{where}: {text}" for text in rest]
    return problems


def _history(world: SimulatedWorld, source: Partition, target: Partition) -> _History:
    found = _History()
    stable = source.log.last_stable_offset
    for batch in source.log.history:
        if batch.is_control or batch.last >= stable:
            continue
        side = found.aborted if batch.aborted else found.source
        side.update((record.offset, _content(record)) for record in batch.records())
    start = source.log.start
    found.removed = {o for o in found.source if o < start or o in source.log.compacted}
    found.cut = [_content(r) for b in source.log.cut if not b.is_control for r in b.records()]
    for batch in target.log.history:
        if _is_ours(world, batch):
            found.target.update((record.offset, _content(record)) for record in batch.records())
    found.strays = _strays(target)
    log = target.log
    found.forgotten = {o for o in found.target if o < log.start or o in log.compacted}
    found.with_time = not target.settings.log_append_time
    if not found.with_time:
        for side in (found.source, found.aborted, found.target):
            side.update((offset, (0, *content[1:])) for offset, content in side.items())
        found.cut = [(0, *content[1:]) for content in found.cut]
    return found


def _is_ours(world: SimulatedWorld, batch: Batch) -> bool:
    return (
        not batch.is_control and batch.count > 0 and batch.producer_id in world.coordinator.claimed
    )


def _strays(target: Partition) -> set[int]:
    """Return the offsets of batches that were under way while the target's log was truncated.

    They do not continue the batch or the marker of their claim that precedes them.
    """
    due: dict[tuple[int, int], int] = {}
    astray: set[tuple[int, int]] = set()
    found: set[int] = set()
    for batch in target.log.history:
        claim = batch.producer_id, batch.producer_epoch
        if batch.is_control:
            due[claim] = 0
            astray.discard(claim)
            continue
        if batch.sequence != due.get(claim, -1):
            astray.add(claim)
        due[claim] = (batch.sequence + batch.last - batch.base + 1) % 2**31
        if claim in astray:
            found.update(range(batch.base, batch.last + 1))
    return found if target.log.cut_at is not None else set()


def _content(record: object) -> Content:
    return record.timestamp, record.key, record.value  # type: ignore[attr-defined]


def _pairs(known: OffsetMap) -> Iterator[tuple[int, int]]:
    for run in known.runs:
        for index in range(run.count):
            yield run.source_start + index, run.target_start + index


def _lost(history: _History, pairs: list[tuple[int, int]], *, with_map: bool) -> list[int]:
    """Return the source records that are not on the target and were not removed from it.

    Records that the target deleted before the map listed them need not be in the map. Nor need
    those of a lost map: a halted partition stops before the claim that finds them again.
    """
    taken = {target for _, target in pairs}
    without_map = history.forgotten if with_map else history.target.keys()
    unmapped = Counter(history.target[o] for o in without_map if o not in taken)
    lost = []
    for offset in sorted(history.source.keys() - {s for s, _ in pairs} - history.removed):
        content = history.source[offset]
        if unmapped[content] > 0:
            unmapped[content] -= 1
        else:
            lost.append(offset)
    return lost


def _took_lost_place(world: SimulatedWorld, source: Partition, offset: int) -> bool:
    """Return whether a record has an offset freed by a truncation, with losses accepted.

    An owner that restarts after it may take it for the record copied from that offset before.
    """
    cut = source.log.cut
    if not (world.scenario.accepts_loss and cut and _may_be_unclear(world, str(source.place))):
        return False
    return source.log.cut_at is not None and source.log.cut_at <= offset <= max(b.last for b in cut)


def _provable(source: Partition, pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Leave out the pairs of deleted records if another history was elected in their place later.

    No log shows of which history they were.
    """
    log = source.log
    trimmed = max((start for _, start in log.trimmed), default=0)
    if log.cut_at is None or log.cut_at >= trimmed:
        return pairs
    return [pair for pair in pairs if pair[0] >= trimmed]


def _judge_pairs(history: _History, pairs: list[tuple[int, int]]) -> Iterator[str]:
    wrong = []
    for source, target in pairs:
        if source in history.aborted:
            yield f"aborted read: {source} is at {target}"
        there = history.source.get(source)
        here = history.target.get(target)
        if there is None or here is None or there != here:
            wrong.append((source, target, there, here))
    if wrong:
        yield f"inconsistent offsets: {len(wrong)} pairs, first {wrong[0]}"
    if any(a[0] >= b[0] or a[1] >= b[1] for a, b in pairwise(pairs)):
        yield "nonmonotonic: the map goes back"


def _judge_ends(known: OffsetMap, source: Partition, target: Partition) -> Iterator[str]:
    """Translate the commits of consumers that have read either log to its end."""
    for partition, end, translate in (
        (source, known.known_source_end, known.forward),
        (target, known.known_target_end, known.backward),
    ):
        log = partition.log
        commit = log.last_stable_offset
        after = [b for b in log.history if end is not None and end <= b.base < commit]
        markers_only = all(batch.is_control for batch in after)
        if markers_only and isinstance(translate(commit), NotCopiedYet):
            yield f"the commit {commit} of {partition.place} is past markers, the map ends at {end}"


def _judge_rest(
    history: _History, pairs: list[tuple[int, int]], *, halted: bool, may_double: bool
) -> Iterator[str]:
    """Check that a target record in no pair is one that the source has lost.

    Where a partition has ``halted``, its last records may not be in the map yet.
    """
    taken = {target for _, target in pairs}
    sources = {source for source, _ in pairs}
    gone = Counter(history.source[o] for o in history.removed if o not in sources)
    gone.update(history.cut)
    if halted:
        gone.update(c for o, c in history.source.items() if o not in sources | history.removed)
    left = []
    for offset, content in history.target.items():
        if offset in taken or offset in history.forgotten | history.strays:
            continue
        if gone[content] > 0:
            gone[content] -= 1
        else:
            left.append(offset)
    known = set(history.source.values())
    doubled = [offset for offset in left if history.target[offset] in known]
    aborted = [offset for offset in left if history.target[offset] not in known]
    if doubled and not may_double:
        yield f"duplicate: {_few(doubled)}"
    if aborted:
        yield f"aborted read: {_few(aborted)}"


def _has_contradiction(world: SimulatedWorld, source: Partition) -> bool:
    return any(
        kind == "contradicting block" and what == str(source.place)
        for _, kind, what in world.events
    )


def _is_forged(world: SimulatedWorld, source: Partition) -> bool:
    """Return whether a forged block may be all that leads to a map: then it is undetectable."""
    kinds = {kind for _, kind, _ in world.events}
    if any((kind, what) == ("forged block", str(source.place)) for _, kind, what in world.events):
        return True
    return _has_contradiction(world, source) and bool(kinds & {*_MAP_LOSSES, "reports lost"})


def _may_stop(
    world: SimulatedWorld, assigned: AssignedPartition, history: _History, mapped: set[int]
) -> bool:
    """Return whether the scenario removed something, so that a partition may have to stop."""
    place = f"{assigned.topic}-{assigned.partition}"
    kinds = {kind for _, kind, what in world.events if what and str(what).startswith(place)}
    if "contradicting block" in kinds:
        return True
    if "source cut" in kinds and history.cut:
        return True
    if history.strays:
        return True
    if kinds & {"source trimmed"} and any(o not in mapped for o in history.removed):
        return True
    return _may_be_unclear(world, place)


def _says_others(world: SimulatedWorld, target: Partition, reason: str) -> bool:
    """Return whether a stop names the records of others in a log that never held a copy.

    Whether to copy after them is an operator's decision.
    """
    if any(_is_ours(world, batch) for batch in (*target.log.history, *target.log.cut)):
        return False
    others = [b for b in target.log.history if not b.is_control and b.producer_id < 0]
    if not others:
        return False
    offsets = both_ends(others[0].base, others[-1].last + 1)
    return f"holds records that srm did not copy, at target offsets {offsets};" in reason


def _may_be_unclear(world: SimulatedWorld, place: str) -> bool:
    """Return whether a log may lack records a walk needs: it stops, or copies some again."""
    kinds = {kind for _, kind, what in world.events if what and str(what).startswith(place)}
    killed = any(kind in ("killed", "slot failed") for _, kind, _ in world.events)
    return killed and bool(
        kinds & {"source cut", "source compacted", "source trimmed", "target trimmed"}
    )


def _few(offsets: list[int]) -> str:
    shown = ", ".join(map(str, offsets[:5]))
    return f"{len(offsets)} records at {shown}{' ...' if len(offsets) > 5 else ''}"
