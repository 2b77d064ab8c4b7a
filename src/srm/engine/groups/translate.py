"""Translation of one offset, and the facts for any translation, read in a safe order.

The order is commits, log start offsets, maps, log end offsets. Records written in between then
count as not copied yet, never as copied. Maps are loaded around the log start offsets, so those are
read first; they may grow at any time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from srm.domain.groups import translation
from srm.domain.groups.translation import UNKNOWN_LOG, Direction, LogRange, Losses, PartitionFacts
from srm.domain.names.topics import Flow, OpenTransaction, TopicPartition
from srm.domain.offset_map.map_loader import Wanted
from srm.domain.offset_map.offset_map import OffsetMap
from srm.domain.verification.compared_record import ComparedRecord
from srm.engine.cluster_ports import Cluster, Place, tolerate
from srm.engine.ports import FlowContext, FlowMaps
from srm.errors import NotFoundError, SrmError, UnavailableError, UsageError

Logs = Mapping[TopicPartition, LogRange]
Starts = Mapping[TopicPartition, int]
Maps = Mapping[Direction, FlowMaps]
"""The maps of a flow, and those of the opposite flow for commits on its copies."""


def starts_of(cluster: Cluster, partitions: Collection[TopicPartition]) -> Starts:
    return cluster.log_starts(partitions) if partitions else {}


def logs_of(
    cluster: Cluster, partitions: Collection[TopicPartition], starts: Starts
) -> dict[TopicPartition, LogRange]:
    """Return the log ranges of the partitions that have a start, which is read before."""
    if not partitions:
        return {}
    ends = cluster.high_watermarks(partitions)
    # Read last: records that a plain producer adds must not look like an open transaction.
    stable = cluster.log_ends(partitions)
    return {
        p: LogRange(start, min(stable[p], ends[p]), ends[p])
        for p, start in starts.items()
        if p in stable and p in ends
    }


def _topics(places: Iterable[TopicPartition]) -> set[str]:
    return {place.topic for place in places}


class WantedMaps:
    """Collects the offsets to translate, by direction and source partition of the map."""

    def __init__(self) -> None:
        self._found: dict[Direction, dict[TopicPartition, Wanted]] = {"forward": {}, "reverse": {}}
        self._shared = set[TopicPartition]()

    def add(
        self,
        direction: Direction,
        upstream: tuple[TopicPartition, Starts],
        downstream: tuple[TopicPartition, Starts],
        offsets: Iterable[int | None],
        also: Iterable[int | None] = (),
        *,
        is_shared: bool = False,
    ) -> None:
        """Add a partition of commits and its counterpart; ``also``: bounds of counts there.

        ``is_shared``: both flows copy into one name, and both maps are needed.
        """
        sides = [(*upstream, offsets), (*downstream, also)]
        if direction == "reverse":
            sides.reverse()
            self._shared |= {upstream[0]} & {downstream[0]}
        wanted = Wanted.of(*((*known, starts.get(place)) for place, starts, known in sides))
        original, found = sides[0][0], self._found[direction]
        found[original] = found.get(original, Wanted()) | wanted
        if is_shared:
            self.add("reverse", upstream, downstream, offsets, also)

    def load(self, context: FlowContext) -> Maps:
        """Load the maps; without offsets to translate, send no request.

        Under one name, copies are counted from where the forward flow has examined the log.
        """
        there, back = self._found["forward"], {**self._found["reverse"]}
        forward = context.maps.load(_topics(there), there) if there else FlowMaps({})
        for place in self._shared:
            back[place] |= Wanted.of((), [forward.get(place).known_source_end])
        reverse = context.reverse_maps.load(_topics(back), back) if back else FlowMaps({})
        return {"forward": forward, "reverse": reverse}


def first_records(
    cluster: Cluster, places: Collection[Place], what: str, *, committed: bool = True
) -> Mapping[Place, ComparedRecord | None]:
    """Read the first record of each place; none if that fails, and the log says what is unknown."""
    trouble, read = f"{what} on {cluster.alias} are unknown", cluster.first_records
    found = tolerate(lambda: read(places, committed=committed), trouble, SrmError) if places else {}
    return found or {}


def past_markers(
    maps: FlowMaps,
    cluster: Cluster,
    copies: Mapping[TopicPartition, tuple[TopicPartition, int]],
    logs: Logs,
) -> FlowMaps:
    """Move the ends of maps past the markers that follow a copy: consumers commit after them.

    ``copies``: by original, its copy and the largest offset to translate. ``logs``: read later.
    """
    ends: dict[Place, TopicPartition] = {}
    for original, (copy, furthest) in copies.items():
        known, log = maps.get(original).known_target_end, logs.get(copy, UNKNOWN_LOG)
        if known is not None and known < furthest <= log.end < UNKNOWN_LOG.end:
            ends[copy, known] = original
    found = first_records(cluster, ends, "markers", committed=False)
    moved = dict[TopicPartition, OffsetMap]()
    for place, record in found.items():
        end = logs[place[0]].end if record is None else min(logs[place[0]].end, record.offset)
        moved[ends[place]] = maps.get(ends[place]).reaching(end)
    return replace(maps, maps={**maps.maps, **moved}) if moved else maps


def losses_of(maps: FlowMaps, original: TopicPartition) -> Losses:
    return Losses.of(maps.notes.get(original, ()), maps.statuses.get(original))


def partition_facts(
    both: Maps,
    direction: Direction,
    upstream: tuple[TopicPartition, Logs],
    downstream: tuple[TopicPartition, Logs],
    target: str,
    transactions: tuple[OpenTransaction, ...] = (),
    *,
    is_shared: bool = False,
) -> PartitionFacts:
    """Assemble the facts about one partition; ``is_shared``: both flows copy into one name."""
    maps, sides = both[direction], (upstream, downstream, target)
    original = upstream[0] if direction == "forward" else downstream[0]
    return PartitionFacts(
        direction=direction,
        upstream=upstream[0],
        downstream=downstream[0],
        target=target,
        upstream_log=upstream[1].get(upstream[0]),
        downstream_log=downstream[1].get(downstream[0]),
        offset_map=maps.get(original),
        damage=maps.errors.get(original, ""),
        losses=losses_of(maps, original),
        transactions=transactions,
        gap=maps.gaps.get(original, ""),
        back=partition_facts(both, "reverse", *sides) if is_shared else None,
    )


@dataclass(frozen=True, slots=True)
class TranslatedOffset:
    """One offset and its counterpart, both next to read, None unless translated."""

    flow: Flow
    cluster: str
    partition: TopicPartition
    offset: int
    to_cluster: str
    to_partition: TopicPartition
    state: translation.State
    to_offset: int | None = None
    remaining: int = 0
    skipped: int = 0
    reason: str = ""


def translate(
    context: FlowContext, partition: TopicPartition, offset: int, *, reverse: bool = False
) -> TranslatedOffset:
    """Translate an offset of a flow's topic exactly: ``Payments`` on P to ``P.Payments`` on B.

    With ``reverse`` the same map is read backwards; either name of the replica is accepted. A
    replica of the flow's target (``B.Payments`` on P) uses the opposite flow's map.
    """
    if offset < 0 or partition.partition < 0:
        raise UsageError(f"invalid offset {offset}, partition {partition.partition}; use 0 or more")
    if reverse:
        return _backward(context, partition, offset)
    remote = context.config.names.remote(partition.topic)
    places = partition, TopicPartition(remote, partition.partition)
    return _answer(context, "forward", places, offset)


def _backward(context: FlowContext, partition: TopicPartition, offset: int) -> TranslatedOffset:
    names, number, back = context.config.names, partition.partition, context.backwards
    if names.is_shared(partition.topic):
        return _answer(back, "forward", (partition, partition), offset)
    if (origin := names.origin(partition.topic)) is not None:
        return _answer(context, "reverse", (partition, TopicPartition(origin, number)), offset)
    topic = names.original(partition.topic) or partition.topic
    remote = TopicPartition(names.remote(topic), number)
    return _answer(back, "reverse", (remote, TopicPartition(topic, number)), offset)


def _answer(
    context: FlowContext,
    direction: Direction,
    places: tuple[TopicPartition, TopicPartition],
    offset: int,
) -> TranslatedOffset:
    sides = context.source, context.target
    is_shared = direction == "forward" and context.config.names.is_shared(places[0].topic)
    (own_start, unread), (other_start, unseen) = map(_starts, sides, places)
    starts, wanted = ((places[0], own_start), (places[1], other_start)), WantedMaps()
    wanted.add(direction, *starts, [offset], is_shared=is_shared)
    maps = dict(wanted.load(context))
    upstream, unread = _logs(sides[0], places[0], own_start, unread)
    downstream, unseen = _logs(sides[1], places[1], other_start, unseen)
    if direction == "reverse":
        copies = {places[1]: (places[0], offset)}
        maps["reverse"] = past_markers(maps["reverse"], sides[0], copies, upstream)
    ends = (places[0], upstream), (places[1], downstream), sides[1].alias
    facts = partition_facts(maps, direction, *ends, is_shared=is_shared)
    found = translation.translate(facts, offset)
    if found.state != "translated" and not unread:
        _require(sides[0], places[0])
    return TranslatedOffset(
        flow=context.config.flow,
        cluster=sides[0].alias,
        partition=places[0],
        offset=offset,
        to_cluster=sides[1].alias,
        to_partition=places[1],
        state=found.state,
        to_offset=found.offset if found.state == "translated" else None,
        remaining=found.remaining,
        skipped=found.total_skipped,
        reason="; ".join(part for part in (found.reason, unread, unseen) if part),
    )


def _require(cluster: Cluster, partition: TopicPartition) -> None:
    there = cluster.partition_counts().get(partition.topic)
    if there is None:
        raise NotFoundError(f"cluster {cluster.alias} has no topic {partition.topic}")
    if partition.partition >= there:
        raise NotFoundError(
            f"cluster {cluster.alias} has no partition {partition}: {partition.topic} has {there}"
        )


def _starts(cluster: Cluster, partition: TopicPartition) -> tuple[Starts, str]:
    try:
        return starts_of(cluster, [partition]), ""
    except UnavailableError as error:
        return {}, _unseen(partition, error)


def _logs(
    cluster: Cluster, partition: TopicPartition, starts: Starts, unseen: str
) -> tuple[Logs, str]:
    """Return the log range of a partition, or a remark if its cluster is unavailable."""
    if unseen:
        return {partition: UNKNOWN_LOG}, unseen
    try:
        return logs_of(cluster, [partition], starts), ""
    except UnavailableError as error:
        return {partition: UNKNOWN_LOG}, _unseen(partition, error)


def _unseen(partition: TopicPartition, error: UnavailableError) -> str:
    return f"not compared with the log of {partition}: {error}"
