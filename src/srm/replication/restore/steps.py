"""Restore a rebuilt source: each step may be killed anywhere, and the next run continues.

===========  ========================================  ============================================
step         writes                                    killed after it, the next run
===========  ========================================  ============================================
begin        the record ``restore`` on P, no pause of  finds its topics, and that they are its own
             ``restore.B->P``, then the topics
seal         a claim of each copy on B                 claims again
copy         records, map and positions on P           continues there, as every slot does
end          a pause of ``restore.B->P``, a claim of   lifts that pause, finds nothing to copy, and
             each original                             ends again
hand over    map, then positions of P->B on B          writes what is missing
checkpoints  positions of groups on the new P          writes the same again
report       the outcome of the disaster               writes the same again
resume       deletes the pause of P->B                 finds nothing to be done
===========  ========================================  ============================================
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from srm.config.restoring import restoring
from srm.domain.flow_state.replication_records import Pause
from srm.domain.groups.mm2_records import TopicIds
from srm.domain.moves.disaster import Outcome
from srm.domain.names.topics import TopicPartition
from srm.domain.offset_map.map_loader import Wanted
from srm.domain.offset_map.offset_map import Position, Translated
from srm.domain.recovery.restore import (
    RESTORE_KEY,
    RestoredPartition,
    RestoreFacts,
    RestorePlan,
    RestoreRecord,
    copies_of,
    plan_topic,
)
from srm.domain.text.amount import amount
from srm.engine.cluster_ports import Cluster, TopicDescription, Topics
from srm.engine.control import topic_sync
from srm.engine.flows.supervision import pause_in_force
from srm.engine.flows.target_topics import StateTopic
from srm.engine.groups.checkpoints import read_checkpoints
from srm.engine.ports import FlowContext
from srm.engine.recovery import store_outcome
from srm.errors import ConflictError, NotFoundError, UnavailableError, UsageError
from srm.replication.claim import Sealed
from srm.replication.driver.discovery import Discovery
from srm.replication.driver.pausing import require_same
from srm.replication.restore.flow_state import RestoreState, progress
from srm.replication.restore.topic_handover import RestoreContext, Show, TopicWork, hand_topic_over


def plan(context: RestoreContext, topics: Collection[str] = ()) -> RestorePlan:
    """Return what a restore of some originals, by default of all with a copy, would do."""
    config, target, source = context.forward.config, context.forward.target, context.forward.source
    flow, copies = config.flow, target.topics()
    forward = RestoreState.read(target, flow)
    if not forward.records:
        raise NotFoundError(
            f"{flow} has never copied anything: {flow.target} holds nothing to restore "
            f"{flow.source} from"
        )
    if config.both_ways:
        raise UsageError(
            f"{flow} and {flow.reverse} keep names of topics, so the copies on {flow.target} hold "
            f"records of {flow.target}, too; restoring {flow.source} from them is not supported",
            f"run {flow.reverse}, which copies all of them to a cluster with another id; then run "
            f"srm return settle --flow '{flow}' --merge TOPIC for each topic",
        )
    names = copies_of(copies, config.names, context.clusters)
    own, originals = RestoreState.read(source, context.copying.config.flow), source.topics()
    unknown = sorted(set(topics) - set(names.values()))
    if unknown:
        known = ", ".join(sorted(names.values())) or "none"
        raise UsageError(
            f"{flow.target} holds no copy of {', '.join(unknown)} for {flow} to resume; "
            f"it holds copies of: {known}"
        )
    plans = {}
    for copy, name in names.items():
        facts = _facts(context, forward, own, copies[copy], originals.get(name), name)
        plans[name] = plan_topic(facts, flow.target, flow.source)
    wanted = tuple(each for name, each in plans.items() if name in topics or not topics)
    done = {each.topic for each in wanted}
    return RestorePlan(
        flow,
        forward.pause,
        wanted,
        tuple(n for n, each in plans.items() if n not in done and each.state != "restored"),
        target.cluster_id(),
        source.cluster_id(),
        tuple(sorted({each.source_cluster for each in forward.state.copied})),
    )


def _facts(
    context: RestoreContext,
    known: RestoreState,
    own: RestoreState,
    copy: TopicDescription,
    original: TopicDescription | None,
    name: str,
) -> RestoreFacts:
    numbers = range(copy.partitions)
    copy_logs = _logs(context.forward.target, [TopicPartition(copy.name, n) for n in numbers])
    known_ends: Sequence[tuple[Position | None, Position | None]] = [(None, None)] * len(numbers)
    foreign = frozenset[TopicPartition]()
    if original is not None:
        known_ends = progress(own, known, original, copy)
        unknown = [TopicPartition(name, n) for n in numbers if known_ends[n][0] is None]
        logs = _logs(context.forward.source, unknown) if unknown else {}
        # They hold records although no restore has reported them.
        filled = {place: original.topic_id for place, (start, end) in logs.items() if end > start}
        foreign = context.logs.begin_with_records(filled) if filled else foreign
    begun = own.restoring
    return RestoreFacts(
        name,
        copy.name,
        tuple(
            RestoredPartition(
                copy_logs[TopicPartition(copy.name, n)],
                restored=restored,
                forward=copied,
                begins_foreign=TopicPartition(name, n) in foreign,
            )
            for n, (restored, copied) in enumerate(known_ends)
        ),
        original is not None,
        original is not None and _is_former(known, own, original, [end for _, end in known_ends]),
        begun is not None and begun.is_for(known.pause),
    )


def _is_former(
    known: RestoreState,
    own: RestoreState,
    original: TopicDescription,
    forward: Collection[Position | None],
) -> bool:
    """Return whether the flow has copied from exactly this topic, so it is not a new one."""
    if any(each.topic_id == original.topic_id for each in known.state.copied):
        return True
    return own.restoring is None and any(forward)


def _logs(
    cluster: Cluster, places: Collection[TopicPartition]
) -> dict[TopicPartition, tuple[int, int]]:
    starts, ends = cluster.log_starts(places), cluster.high_watermarks(places)
    return {place: (starts.get(place, 0), ends[place]) for place in places if place in ends}


_APPEAR_S: Final = 30.0
_LOOK_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Restored:
    """Result of a restore, with the number of records in the maps handed over in this run."""

    topics: tuple[str, ...]
    records: int
    checkpoints: int
    goes_on: bool
    unrestored: tuple[str, ...]


def check(planned: RestorePlan) -> None:
    """Refuse a plan of a flow that is not paused, or with a refused topic (ConflictError)."""
    if planned.is_over:
        return
    flow = planned.forward
    if planned.pause is None:
        raise ConflictError(
            f"{flow} is not paused: a restore follows an unplanned failover; while {flow} runs, it "
            "would copy the restored records again"
        )
    for refused in planned.refusals:
        raise ConflictError(refused.reason)


def restore(
    context: RestoreContext, topics: Collection[str] = (), show: Show = lambda _line: None
) -> Restored:
    """Restore topics, and resume the flow if none is left; safe to repeat.

    Without topics, all originals with a copy. ConflictError: see :func:`check`, or another process
    writes to the originals.
    """
    planned = plan(context, topics)
    check(planned)
    names = tuple(each.topic for each in planned.topics)
    pause = planned.pause
    if planned.is_over or pause is None:
        return Restored(names, 0, 0, goes_on=True, unrestored=planned.unrestored)
    records = 0
    if planned.to_restore:
        works, pause = _begin(context, planned, pause, show)
        sealed = _seal(context, context.forward, [work.places(work.copy) for work in works], show)
        show(f"copying {amount(sum(each.plan.offsets for each in works), 'offset')}")
        context.copy([each.plan.copy for each in works])
        _end(context, pause, works, show)
        for work in works:
            records += hand_topic_over(context, work, sealed, show)
    written = renew_checkpoints(context.forward, {each.copy: each.topic for each in planned.topics})
    if not planned.unrestored:
        # It may be of a later failover. One that another restore has renewed stays, too: records
        # that P->B copies while the other flow copies back would return to P as new records.
        require_same(pause_in_force(context.forward), pause.request)
        now_ms, flow = context.forward.now_ms(), str(planned.forward)
        for move_id in pause.moves:  # the actual loss of the disaster next to its forecast
            store_outcome(context.forward, Outcome(move_id, flow, "rebuilt", now_ms, context.by))
        show(f"{planned.forward} continues")
        context.forward.own_switch.resume(request=pause.request)
    return Restored(
        names, records, written, goes_on=not planned.unrestored, unrestored=planned.unrestored
    )


def _begin(
    context: RestoreContext, planned: RestorePlan, pause: Pause, show: Show
) -> tuple[list[TopicWork], Pause]:
    """Create what is missing on P, write down that it is being restored, and renew the pause.

    A settlement names the pause that it has looked under. One that looked before the renewal cannot
    end the pause any more, and one that looks after it finds the record.
    """
    copies = [each.copy for each in planned.to_restore.values()]
    config = restoring(context.copying.config, copies)
    copying = replace(context.copying, config=config)
    source = context.forward.source
    Discovery(copying).prepare()
    context.copying.own_switch.resume()  # an earlier restore, of other topics, has ended there
    show(f"creating {', '.join(planned.to_restore)} on {source.alias}, as their copies are")
    topic_sync.sync(copying)
    there = context.forward.target.topics()
    wanted = {name: there[each.copy].partitions for name, each in planned.to_restore.items()}
    originals = _until_there(context, wanted)
    flow = copying.config.flow
    known, new = RestoreState.read(source, flow).restoring, replace(pause, request=uuid.uuid4().hex)
    topics = dict(known.topics) if known is not None and known.is_for(pause) else {}
    topics |= {name: originals[name].topic_id for name in planned.to_restore}
    record = RestoreRecord((pause.request, new.request), topics, context.by, copying.now_ms())
    StateTopic(source, flow.source).write({RESTORE_KEY: record.value()})
    context.forward.own_switch.pause(new, pause.request)
    plans = planned.to_restore.items()
    return [TopicWork(each, there[each.copy], originals[name]) for name, each in plans], new


def _until_there(context: RestoreContext, wanted: Mapping[str, int]) -> Topics:
    deadline, source = time.monotonic() + _APPEAR_S, context.forward.source
    pause = threading.Event()  # never set: between two looks
    while True:
        found = source.topics()
        missing = [n for n, size in wanted.items() if n not in found or found[n].partitions < size]
        if not missing:
            return found
        if time.monotonic() > deadline:
            raise UnavailableError(
                f"{', '.join(missing)} on {source.alias} did not appear in {_APPEAR_S:.0f} s"
            )
        pause.wait(_LOOK_S)


def _end(context: RestoreContext, pause: Pause, works: Collection[TopicWork], show: Show) -> None:
    """Fence every process that still copies back: after P->B resumes, copies get records of P."""
    reason = "the restore has ended"
    ended = Pause(uuid.uuid4().hex, context.by, reason, context.copying.now_ms(), pause.move_id)
    context.copying.own_switch.pause(ended)
    _seal(context, context.copying, [work.places(work.original) for work in works], show)


def _seal(
    context: RestoreContext,
    flow: FlowContext,
    topics: Iterable[Mapping[TopicPartition, str]],
    show: Show,
) -> Mapping[TopicPartition, Sealed]:
    places = {place: topic_id for topic in topics for place, topic_id in topic.items()}
    show(f"sealing {amount(len(places), 'partition')} on {flow.target.alias}")
    return context.logs.seal(flow.config.flow, places)


def renew_checkpoints(forward: FlowContext, originals: Mapping[str, str]) -> int:
    """Write checkpoints of restored topics with offsets of the new log; return their number.

    The position of a group on the target is still valid, and the new map translates it to the
    source. A later failover would take an offset of the old log for one of the new.
    """
    config = forward.config
    topic = config.checkpoints_topic
    target, sources = forward.target, forward.source.topics()
    found = read_checkpoints(target, topic, target.topics())
    places = {
        one: TopicPartition(originals[place.topic], place.partition)
        for one in found
        if (place := one.topic_partition).topic in originals
    }
    if not places:
        return 0
    downstream = defaultdict[TopicPartition, set[int]](set)
    for each, source in places.items():
        downstream[source].add(each.downstream_offset)
    wanted = {place: Wanted.of((), offsets) for place, offsets in downstream.items()}
    maps = forward.maps.load(set(originals.values()), wanted)
    changed: dict[bytes, bytes | None] = {}
    for each, source in places.items():
        offset, ids = maps.get(source).backward(each.downstream_offset), each.topic_ids
        if isinstance(offset, Translated):
            now = ids and TopicIds(sources[source.topic].topic_id, ids.target).metadata()
            renewed = replace(each, upstream_offset=offset.offset, metadata=now or each.metadata)
            if renewed != each:
                changed[each.key()] = renewed.value()
    if changed:
        target.compacted_topic(topic).write(changed)
    return len(changed)
