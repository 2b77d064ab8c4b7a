"""Values of the metrics, made from the service's looks; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from srm import __version__
from srm.domain.groups.proof_records import FlowProof
from srm.domain.moves.records.progress import DECIDED, HELD
from srm.domain.moves.report.report import MoveReport
from srm.domain.names.topics import Flow
from srm.domain.recovery.drill import Drill
from srm.engine.metrics.metrics import is_fresh
from srm.engine.status.observing import FlowState
from srm.engine.status.status import FlowStatus
from srm.service.prometheus.metric_table import (
    PARTITION_STATES,
    STATES,
    TOPIC_HEALTH,
    TOPIC_STATES,
)
from srm.service.views import flow_rows
from srm.service.views.documents import FlowSummary, ForecastLine, GroupRow, TopicRow
from srm.service.views.series import Figures, Measured
from srm.service.views.snapshots import FlowLook, MoveLook, TargetLook

Labels = tuple[str, ...]
Sample = tuple[str, Labels, float]
"""Metric, values of its labels, value."""

_RUNNING: Final = (HELD | DECIDED) - {"reported"}


def service_samples(targets: Iterable[TargetLook]) -> Iterator[Sample]:
    """Yield the metrics of the service itself."""
    yield "srm_service_info", (__version__,), 1
    for look in targets:
        yield "srm_target_look_timestamp_seconds", (look.alias,), look.looked_ms / 1000
        yield "srm_target_up", (look.alias,), bool(look.looked_ms and not look.error)


def flow_samples(look: FlowLook, groups: Collection[GroupRow]) -> Iterator[Sample]:
    """Yield the metrics of one flow, with the totals of its groups."""
    flow, view = look.flow, look.view
    labels, row = (flow.source, flow.target), flow_rows.summary(look)
    yield from _summary(row, labels)
    if view is None:
        return
    yield "srm_flow_source_up", labels, not view.status.source_error
    if view.status.heard_ms:
        yield "srm_flow_source_heard_timestamp_seconds", labels, view.status.heard_ms / 1000
    yield "srm_flow_lag_offsets", labels, row.lag
    yield from _replicator(view.status, labels)
    yield from _states(view, labels)
    yield from _group_totals(groups, labels)
    if view.status.standing is not None and view.status.standing.proof is not None:
        yield from _proof(view.status.standing.proof, labels)
    yield from _window_samples("flow", labels, look.measured.get(""), look, row.lag)


def _summary(row: FlowSummary, labels: Labels) -> Iterator[Sample]:
    replicator = row.replicator
    name, host = (replicator.application_id, replicator.host) if replicator else ("", "")
    yield "srm_flow_info", (*labels, row.flow, name, host), 1
    yield from _one_of("srm_flow_state", labels, STATES, row.state)
    yield "srm_flow_look_timestamp_seconds", labels, row.looked_ms / 1000
    yield "srm_flow_look_up", labels, bool(row.looked_ms and not row.error)
    if row.forecast is not None:
        yield from _forecast(row.forecast, labels)


def _replicator(status: FlowStatus, labels: Labels) -> Iterator[Sample]:
    driver = status.driver
    yield "srm_replicator_up", labels, driver is not None and driver.alive
    if driver is not None:
        beat_ms = status.time_ms - driver.age_ms
        yield "srm_replicator_heartbeat_timestamp_seconds", labels, beat_ms / 1000
    counts = Counter("true" if slot.alive else "false" for slot in status.slots)
    yield from _count_samples("srm_replicator_slots", labels, ("true", "false"), counts)


def _forecast(found: ForecastLine, labels: Labels) -> Iterator[Sample]:
    yield "srm_forecast_lost_records", labels, found.records_lost
    if found.records_lost_at_most is not None:
        yield "srm_forecast_lost_at_most_records", labels, found.records_lost_at_most
    if found.seconds_lost is not None:
        yield "srm_forecast_lost_seconds", labels, found.seconds_lost
    yield "srm_forecast_read_again_records", labels, found.records_read_again
    yield "srm_forecast_unseen_groups", labels, found.groups_unseen
    yield "srm_forecast_unknown_partitions", labels, len(found.unknown)


def _states(view: FlowState, labels: Labels) -> Iterator[Sample]:
    yield from _count_samples(
        "srm_flow_topics", labels, TOPIC_STATES, Counter(t.state for t in view.status.topics)
    )
    states = Counter[str]()
    lost = 0
    for partitions in view.partitions.values():
        for one in partitions:
            states[one.state] += 1
            lost += sum(note.lost for note in one.notes if not note.decision)
    yield from _count_samples("srm_flow_partitions", labels, PARTITION_STATES, states)
    yield "srm_flow_lost_offsets", labels, lost


def _group_totals(groups: Collection[GroupRow], labels: Labels) -> Iterator[Sample]:
    names = {True: "yes", False: "no", None: "unknown"}
    counts = Counter(names[group.can_go_on] for group in groups)
    yield from _count_samples("srm_flow_groups", labels, names.values(), counts)
    known = [group.checkpoint_ms for group in groups if group.checkpoint_ms is not None]
    if known:
        yield "srm_checkpoints_oldest_timestamp_seconds", labels, min(known) / 1000


def _proof(proof: FlowProof, labels: Labels) -> Iterator[Sample]:
    yield "srm_checkpoints_proof_timestamp_seconds", labels, proof.time_ms / 1000
    yield "srm_checkpoints_proof_duration_seconds", labels, proof.took_ms / 1000
    yield "srm_checkpoints_sampled_groups", labels, proof.sampled
    yield "srm_checkpoints_proven_groups", labels, proof.proven
    yield "srm_checkpoints_disproved_partitions", labels, len(proof.wrong_partitions)
    yield "srm_checkpoints_withheld", labels, proof.withheld
    yield "srm_checkpoints_unread_groups", labels, len(proof.unread)


def topic_samples(look: FlowLook, topics: Iterable[TopicRow]) -> Iterator[Sample]:
    """Yield the metrics of the topics of a flow."""
    newest = look.measured.get("")
    for row in topics:
        labels = (look.flow.source, look.flow.target, row.topic)
        yield from _one_of("srm_topic_state", labels, TOPIC_HEALTH, row.state)
        yield "srm_topic_lag_offsets", labels, row.lag
        yield "srm_topic_partitions", labels, row.partitions
        yield "srm_topic_copied_offsets", labels, row.copied
        yield from _window_samples("topic", labels, row.measured, look, row.lag, newest)


def group_samples(flow: Flow, groups: Iterable[GroupRow]) -> Iterator[Sample]:
    """Yield the metrics of the groups of a flow."""
    for row in groups:
        labels = (flow.source, flow.target, row.group)
        if row.checkpoint_ms is not None:
            yield "srm_group_checkpoint_timestamp_seconds", labels, row.checkpoint_ms / 1000
        yield "srm_group_checkpoint_partitions", labels, row.partitions
        yield "srm_group_read_again_records", labels, row.records_read_again
        yield "srm_group_skipped_records", labels, row.records_skipped
        if row.can_go_on is not None:
            yield "srm_group_can_go_on", labels, row.can_go_on
        yield "srm_group_proven", labels, not row.proof
        yield "srm_group_followers", labels, row.followers


def _window_samples(
    subject: str,
    labels: Labels,
    window: Measured | None,
    look: FlowLook,
    lag: int,
    newest: Measured | None = None,
) -> Iterator[Sample]:
    """Yield the end of a window and its current rates; ``newest`` is the flow's newest window."""
    if window is None:
        return
    first = f"srm_{subject}"
    yield f"{first}_window_end_timestamp_seconds", labels, window.end_ms / 1000
    now = _of_now(window, look, lag, newest or window)
    if now is None:
        return
    seconds = max(1, now.end_ms - now.start_ms) / 1000
    yield f"{first}_rate_records_per_second", labels, now.records / seconds
    rate = now.byte_rate
    for name, value in (("", rate.sum), ("_min", rate.min), ("_max", rate.max)):
        yield f"{first}_rate{name}_bytes_per_second", labels, value
    for kind, figures in (
        ("replication", now.replication_latency_ms),
        ("checkpoint", now.checkpoint_latency_ms),
    ):
        if figures.count:
            for name, value in _spread(figures):
                yield f"{first}_{kind}_latency_{name}_seconds", labels, value / 1000


def _of_now(window: Measured, look: FlowLook, lag: int, newest: Measured) -> Measured | None:
    """Return the window, an empty one if its subject is idle, None if that is unknown.

    A topic is idle if a newer window of the flow lacks it. Without fresh windows a subject is idle
    if the latest look succeeded and found no lag.
    """
    nothing = Measured(
        *(window.start_ms, window.end_ms, 0, 0), *(Figures(), Figures(), Figures(), Figures())
    )
    if is_fresh(newest.end_ms, look.looked_ms):
        return nothing if window.end_ms <= newest.start_ms else window
    return None if lag or look.error else nothing


def _spread(figures: Figures) -> tuple[tuple[str, float], ...]:
    return (("min", figures.min), ("avg", figures.avg), ("max", figures.max))


def move_samples(moves: Iterable[MoveLook]) -> Iterator[Sample]:
    """Yield the metrics of running moves and of the last move of each kind."""
    running, held, last = Counter[Labels](), dict[Labels, int](), dict[Labels, MoveLook]()
    for look in moves:
        request, progress = look.plan.request, look.progress
        labels: Labels = (request.source, request.target, request.operation, request.mode)
        if progress.step in _RUNNING:
            running[*labels, progress.step] += 1
        if progress.step in HELD:
            held[labels] = min(_step_time(look, "holding"), held.get(labels, 1 << 62))
        if progress.step in {"reported", "released"} and (
            labels not in last or _ended_ms(look) > _ended_ms(last[labels])
        ):
            last[labels] = look
    yield from (("srm_move_running", labels, count) for labels, count in running.items())
    for of, since_ms in held.items():
        yield "srm_move_hold_timestamp_seconds", of, since_ms / 1000
    for labels, look in last.items():
        yield "srm_move_last_end_timestamp_seconds", labels, _ended_ms(look) / 1000
        report = look.report.report if look.report else None
        yield "srm_move_last_ok", labels, report is not None and report.ok
        if report is not None:
            yield from _outcome(report, labels)
        if (held_s := look.progress.held_seconds) is not None:
            yield "srm_move_last_rto_seconds", labels, held_s


def _ended_ms(look: MoveLook) -> int:
    return _step_time(look, look.progress.step)


def _step_time(look: MoveLook, step: str) -> int:
    return look.progress.times_ms.get(step, look.plan.created_ms)


def _outcome(report: MoveReport, labels: Labels) -> Iterator[Sample]:
    for name, value in (
        ("rpo_records", report.rpo_records),
        ("rpo_at_most_records", report.rpo_at_most),
        ("rpo_seconds", report.rpo_seconds),
        ("rto_seconds", report.rto_seconds),
        ("read_again_records", sum(group.re_read for group in report.groups.values())),
        ("residue_records", sum(report.residue.values())),
    ):
        if value is not None:
            yield f"srm_move_last_{name}", labels, value


def drill_samples(drills: Iterable[Drill]) -> Iterator[Sample]:
    """Yield the metrics of running drills and of the last drill of each flow."""
    running, last = Counter[Labels](), dict[Labels, Drill]()
    for drill in drills:
        flow = Flow.parse(drill.flow)
        labels: Labels = (flow.source, flow.target)
        if drill.state == "running":
            running[labels] += 1
        elif labels not in last or drill.time_ms > last[labels].time_ms:
            last[labels] = drill
    for of in sorted(running.keys() | last.keys()):
        yield "srm_drill_running", of, running[of]
    for labels, drill in last.items():
        yield "srm_drill_last_timestamp_seconds", labels, drill.time_ms / 1000
        yield "srm_drill_last_ok", labels, drill.ok
        yield "srm_drill_last_rto_seconds", labels, drill.rto_seconds
        yield "srm_drill_last_groups", labels, len(drill.groups)
        yield "srm_drill_last_proven_groups", labels, drill.proven


def _one_of(metric: str, labels: Labels, names: Iterable[str], now: str) -> Iterator[Sample]:
    for name in names:
        yield metric, (*labels, name), name == now


def _count_samples(
    metric: str, labels: Labels, names: Iterable[str], counts: Counter[str]
) -> Iterator[Sample]:
    """Yield a count for each name, also 0: a missing series raises no alert."""
    for name in names:
        yield metric, (*labels, name), counts[name]
