"""Return of a flow to MirrorMaker 2: its connector gets the exact positions of the copies."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from srm.domain.flow_state.liveness_thresholds import SILENT_S
from srm.domain.flow_state.replication_records import AssignedPartition
from srm.domain.flow_state.replication_state import decode_state
from srm.domain.flow_state.reported_positions import positions_by_copy
from srm.domain.names.topics import Flow, TopicPartition
from srm.engine.flows import mm2_offsets
from srm.engine.flows.supervision import driver_status, slot_statuses, state_topic
from srm.engine.ports import FlowContext
from srm.errors import ConflictError, NotFoundError, SrmError
from srm.replication.takeover.copy_end import WalkedLogs


@dataclass(frozen=True, slots=True)
class BackPosition:
    """The next source offset of one partition."""

    topic: str
    partition: int
    source_next: int


@dataclass(frozen=True, slots=True)
class HandedBack:
    """Positions for MirrorMaker 2, of all partitions that srm has copied."""

    flow: Flow
    positions: tuple[BackPosition, ...]


def plan(
    context: FlowContext,
    logs: WalkedLogs,
    topics: Collection[str] = (),
    show: Callable[[int], None] = lambda _done: None,
) -> HandedBack:
    """Prove where the copies of a stopped flow end; without topics, those of all that it copies.

    ``show`` receives the number of partitions that were walked.

    ConflictError: the replicator, or a slot of it, runs. NotFoundError: no topic was copied.
    """
    config, records = context.config, state_topic(context).read()
    check_stopped(records, config.flow, context.now_ms())
    reported = positions_by_copy(decode_state(records).reports)
    sources, targets = context.source.topics(), context.target.topics()
    copied = []
    for name in sorted(topics or config.names.select(sources)):
        source = sources.get(name)
        remote = targets.get(config.policy.format_remote_topic(config.flow.source, name))
        if source is not None and remote is not None:
            ids = source.topic_id, remote.name, remote.topic_id
            every = (AssignedPartition(name, n, *ids) for n in range(source.partitions))
            copied += [one for one in every if one.copy_id in reported]
    if not copied:
        raise NotFoundError(f"{config.flow} has copied none of these topics")
    positions = []
    for one, found in logs.copy_ends(copied, show).items():
        if isinstance(found, SrmError):
            raise found
        positions.append(BackPosition(one.topic, one.partition, found.source_next))
    return HandedBack(config.flow, tuple(positions))


def check_stopped(records: Mapping[bytes, bytes], flow: Flow, now_ms: int) -> None:
    """Refuse a flow that is still copied: slots outlive a driver that was killed."""
    driver, _ = driver_status(records, flow, now_ms)
    if driver is not None and driver.alive:
        raise ConflictError(
            f"the replicator of {flow} runs on {driver.host}",
            f"srm replicator stop --flow '{flow}'",
        )
    slots = slot_statuses(decode_state(records).reports, now_ms)
    alive = [slot.slot for slot in slots if slot.alive]
    if alive and not (driver is not None and driver.ended):
        raise ConflictError(
            f"slots {', '.join(alive)} of {flow} have reported lately, without a driver",
            f"end the executors, and run this again after {SILENT_S:.0f} s",
        )


def write(context: FlowContext, found: HandedBack, offsets_topic: str = "") -> None:
    """Write the positions where MirrorMaker 2's workers read them; an empty topic is the default.

    ConflictError: MirrorMaker 2 runs and would overwrite them, or the flow is copied again.
    """
    flow, target = found.flow, context.target
    check_stopped(state_topic(context).read(), flow, context.now_ms())
    group = mm2_offsets.workers_group(flow)
    [workers] = target.groups([group]).values()
    if workers.members:
        raise ConflictError(
            f"MirrorMaker 2 runs: group {group} on {flow.target} has members "
            f"{', '.join(workers.members)}; stop it first"
        )
    topic = offsets_topic or mm2_offsets.offsets_topic(flow)
    wanted = {TopicPartition(one.topic, one.partition): one.source_next for one in found.positions}
    mm2_offsets.write(target, topic, flow, wanted)
