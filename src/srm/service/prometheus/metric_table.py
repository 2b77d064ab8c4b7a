"""Table of the metrics of flows, groups and moves in ``/metrics``: name, labels, meaning.

Names and units follow Prometheus' conventions: the name ends in the base unit, seconds or bytes.
All are gauges: a value found by a look may fall (a topic is deleted, a window slides). Times are
timestamps, not ages, so that a stalled value is visible.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, get_args

from srm.domain.flow_state.replication_records import State as ReportedState
from srm.engine.status.health import State as HealthState
from srm.engine.status.status import TopicState

Subject = Literal["flow", "topic", "group", "move", "service"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric; it has one series per ``subject``, identified by ``labels``."""

    name: str
    labels: tuple[str, ...]
    meaning: str
    subject: Subject = "flow"

    @property
    def unit(self) -> str:
        """Unit at the end of the name, else empty."""
        return next((unit for unit in _UNITS if self.name.endswith(f"_{unit}")), "")

    @property
    def is_info(self) -> bool:
        """True if its labels carry the information and its value is always 1."""
        return self.name.endswith("_info")


_UNITS: Final = (
    "bytes_per_second",
    "records_per_second",
    "seconds",
    "records",
    "offsets",
)
_FLOW: Final = ("source", "target")
_TOPIC: Final = (*_FLOW, "topic")
_GROUP: Final = (*_FLOW, "group")
_MOVE: Final = (*_FLOW, "operation", "mode")

STATES: Final = (*get_args(HealthState), "UNKNOWN")
TOPIC_HEALTH: Final = STATES[:3]
TOPIC_STATES: Final = get_args(TopicState)
PARTITION_STATES: Final = (*get_args(ReportedState), "unknown")


def _window_metrics(subject: Subject, labels: tuple[str, ...]) -> Iterator[Metric]:
    """Declare the window metrics of a flow or a topic."""
    first = f"srm_{subject}"
    for name, meaning, rate in (
        ("_min", "Minimum", "Bytes per second written to the slowest partition, in"),
        ("", "Mean", "Bytes per second written to the target, in"),
        ("_max", "Maximum", "Bytes per second written to the fastest partition, in"),
    ):
        yield Metric(
            f"{first}_rate{name}_bytes_per_second",
            labels,
            f"{rate} the newest window.",
            subject,
        )
        for kind, of in (
            ("replication", "from a record's timestamp until the target acknowledged it"),
            ("checkpoint", "from the look at a group until its checkpoint was acknowledged"),
        ):
            yield Metric(
                f"{first}_{kind}_latency{name or '_avg'}_seconds",
                labels,
                f"{meaning} time {of}, in the newest window; absent without one.",
                subject,
            )
    yield Metric(
        f"{first}_rate_records_per_second",
        labels,
        "Records copied per second in the newest window.",
        subject,
    )
    yield Metric(
        f"{first}_window_end_timestamp_seconds",
        labels,
        "End of the newest window, which the rates and latencies cover.",
        subject,
    )


_FLOWS: Final = (
    Metric(
        "srm_flow_info",
        (*_FLOW, "flow", "application_id", "host"),
        "A flow and its replicator.",
    ),
    Metric(
        "srm_flow_state",
        (*_FLOW, "state"),
        "1 for the state of the flow, 0 for the others.",
    ),
    Metric(
        "srm_flow_look_timestamp_seconds",
        _FLOW,
        "Time of the last successful look at the flow; 0: none since the service started.",
    ),
    Metric("srm_flow_look_up", _FLOW, "1 if the latest look at the flow succeeded, else 0."),
    Metric("srm_flow_source_up", _FLOW, "1 if the source answered the latest look, else 0."),
    Metric(
        "srm_flow_source_heard_timestamp_seconds",
        _FLOW,
        "Time at which the source last answered a slot of the replicator; absent if unknown.",
    ),
    Metric("srm_flow_lag_offsets", _FLOW, "Source offsets not copied yet."),
    Metric("srm_flow_topics", (*_FLOW, "state"), "Selected topics by state."),
    Metric("srm_flow_partitions", (*_FLOW, "state"), "Partitions of the selected topics by state."),
    Metric(
        "srm_flow_lost_offsets",
        _FLOW,
        "Offsets of existing topics that can never be copied: retention, truncation, refusals.",
    ),
    Metric(
        "srm_flow_groups",
        (*_FLOW, "can_go_on"),
        "Consumer groups by whether they could resume without the source now: yes, no, or unknown "
        "(no known position, or the target does not answer).",
    ),
    Metric("srm_replicator_up", _FLOW, "1 if the replicator has sent a recent heartbeat, else 0."),
    Metric(
        "srm_replicator_heartbeat_timestamp_seconds",
        _FLOW,
        "Time of its last heartbeat; absent if there never was one.",
    ),
    Metric(
        "srm_replicator_slots", (*_FLOW, "alive"), "Slots of the flow by whether they are alive."
    ),
    Metric(
        "srm_checkpoints_oldest_timestamp_seconds",
        _FLOW,
        "Time as of which the position of the most outdated group is known.",
    ),
    Metric(
        "srm_checkpoints_proof_timestamp_seconds",
        _FLOW,
        "Start of the last emission whose checkpoints were proven.",
    ),
    Metric(
        "srm_checkpoints_proof_duration_seconds",
        _FLOW,
        "Time from that start until the proof was complete.",
    ),
    Metric("srm_checkpoints_sampled_groups", _FLOW, "Groups that this proof checked."),
    Metric(
        "srm_checkpoints_proven_groups",
        _FLOW,
        "Checked groups whose translations the records on both sides prove.",
    ),
    Metric(
        "srm_checkpoints_disproved_partitions",
        _FLOW,
        "Partitions with a wrong translation, which is not emitted.",
    ),
    Metric("srm_checkpoints_withheld", _FLOW, "Checkpoints not emitted for this reason."),
    Metric(
        "srm_checkpoints_unread_groups",
        _FLOW,
        "Groups whose offsets were not read, so that their checkpoints do not advance.",
    ),
    Metric(
        "srm_forecast_lost_records",
        _FLOW,
        "Records not copied when the source last answered: lost if it failed now (RPO).",
    ),
    Metric(
        "srm_forecast_lost_at_most_records",
        _FLOW,
        "The same plus the records that the source may have accepted since; absent if unknown.",
    ),
    Metric(
        "srm_forecast_lost_seconds",
        _FLOW,
        "Age of the oldest such record, or time since the source last answered (RPO, lag in "
        "time); absent if unknown.",
    ),
    Metric(
        "srm_forecast_read_again_records",
        _FLOW,
        "Maximum number of records that groups would read again if the source failed now.",
    ),
    Metric(
        "srm_forecast_unseen_groups",
        _FLOW,
        "Groups known by name only: auto.offset.reset would decide where they resume.",
    ),
    Metric(
        "srm_forecast_unknown_partitions",
        _FLOW,
        "Partitions that are unknown to the forecast or not copied.",
    ),
    *_window_metrics("flow", _FLOW),
)

_TOPICS: Final = (
    Metric(
        "srm_topic_state",
        (*_TOPIC, "state"),
        "1 for the state of the topic, 0 for the others.",
        "topic",
    ),
    Metric(
        "srm_topic_lag_offsets",
        _TOPIC,
        "Source offsets not copied yet.",
        "topic",
    ),
    Metric("srm_topic_partitions", _TOPIC, "Partitions on the source.", "topic"),
    Metric(
        "srm_topic_copied_offsets",
        _TOPIC,
        "Filled offsets of the remote topic that its log still holds.",
        "topic",
    ),
    *_window_metrics("topic", _TOPIC),
)

_GROUPS: Final = (
    Metric(
        "srm_group_checkpoint_timestamp_seconds",
        _GROUP,
        "Time as of which the position is known: the newest checkpoint, or the last emission "
        "that found it unchanged.",
        "group",
    ),
    Metric("srm_group_checkpoint_partitions", _GROUP, "Partitions with a checkpoint.", "group"),
    Metric(
        "srm_group_read_again_records",
        _GROUP,
        "Maximum number of records that the group would read again if the source failed now.",
        "group",
    ),
    Metric(
        "srm_group_skipped_records",
        _GROUP,
        "Records not read yet that the target no longer holds.",
        "group",
    ),
    Metric(
        "srm_group_can_go_on",
        _GROUP,
        "1 if the group could resume without the source now, else 0; absent if unknown.",
        "group",
    ),
    Metric(
        "srm_group_proven",
        _GROUP,
        "1 if records on both sides proved its checkpoints at the last emission, else 0.",
        "group",
    ),
    Metric(
        "srm_group_followers",
        _GROUP,
        "Clients that follow routes, by their recent heartbeats on the target.",
        "group",
    ),
)

_MOVES: Final = (
    Metric(
        "srm_move_running",
        (*_MOVE, "step"),
        "Running moves, from the hold until the report, by the last step reached.",
        "move",
    ),
    Metric(
        "srm_move_hold_timestamp_seconds",
        _MOVE,
        "Start of the oldest hold that still holds clients; absent without one.",
        "move",
    ),
    Metric(
        "srm_move_last_end_timestamp_seconds",
        _MOVE,
        "End of the last move: reported, or released.",
        "move",
    ),
    Metric("srm_move_last_ok", _MOVE, "1 if it was clean, 0 if unclean or released.", "move"),
    Metric(
        "srm_move_last_rpo_records",
        _MOVE,
        "Records lost; absent until known: after an unplanned move, until the source returns.",
        "move",
    ),
    Metric(
        "srm_move_last_rpo_at_most_records",
        _MOVE,
        "Maximum number of records lost; absent without a known bound.",
        "move",
    ),
    Metric("srm_move_last_rpo_seconds", _MOVE, "Time span of the lost records.", "move"),
    Metric(
        "srm_move_last_rto_seconds",
        _MOVE,
        "Time from the hold until the last group worked on the target, or until the release.",
        "move",
    ),
    Metric("srm_move_last_read_again_records", _MOVE, "Records its groups read again.", "move"),
    Metric(
        "srm_move_last_residue_records",
        _MOVE,
        "Records written to the old side after the move.",
        "move",
    ),
    Metric("srm_drill_running", _FLOW, "Running drills.", "move"),
    Metric("srm_drill_last_timestamp_seconds", _FLOW, "Start of the last drill.", "move"),
    Metric("srm_drill_last_ok", _FLOW, "1 if that drill proved everything, else 0.", "move"),
    Metric("srm_drill_last_rto_seconds", _FLOW, "Estimated time without service.", "move"),
    Metric("srm_drill_last_groups", _FLOW, "Groups rehearsed.", "move"),
    Metric("srm_drill_last_proven_groups", _FLOW, "Groups proven.", "move"),
)

_SERVICE: Final = (
    Metric("srm_service_info", ("version",), "Version of the service.", "service"),
    Metric(
        "srm_target_look_timestamp_seconds",
        ("target",),
        "Time of the last look at the target; 0: none yet.",
        "service",
    ),
    Metric("srm_target_up", ("target",), "1 if that look succeeded, else 0.", "service"),
)

METRICS: Final = {
    metric.name: metric for metric in (*_FLOWS, *_TOPICS, *_GROUPS, *_MOVES, *_SERVICE)
}
"""All metrics by name."""
