"""Every metric of flows, groups and moves that ``/metrics`` has: name, labels, meaning.

Names and units follow Prometheus' conventions: base units, seconds and bytes, at the end of the
name. All are gauges: what a look has found, which may fall (a topic is deleted, a window slides).
Times are given as timestamps, not as ages, so that what stands still is seen to.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, get_args

from srm.domain.flow_state.replication_records import State as ReportedState
from srm.engine.flows.health import State as HealthState
from srm.engine.flows.status import TopicState

Subject = Literal["flow", "topic", "group", "move", "service"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric; ``subject`` is what there is one of it for, ``labels`` say which."""

    name: str
    labels: tuple[str, ...]
    meaning: str
    subject: Subject = "flow"

    @property
    def unit(self) -> str:
        """The unit, as the name ends in it."""
        return next((unit for unit in _UNITS if self.name.endswith(f"_{unit}")), "")

    @property
    def is_info(self) -> bool:
        """Whether its labels are what it says, and its value is always 1."""
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
    """Declare what is measured over windows, of a flow or of a topic."""
    first = f"srm_{subject}"
    for name, meaning, rate in (
        ("_min", "Least", "Bytes per second written to the slowest partition, in"),
        ("", "Mean of all", "Bytes per second written to the target, in"),
        ("_max", "Greatest", "Bytes per second written to the fastest partition, in"),
    ):
        yield Metric(
            f"{first}_rate{name}_bytes_per_second",
            labels,
            f"{rate} the newest window.",
            subject,
        )
        for kind, of in (
            ("replication", "from a record's timestamp until the target had acknowledged it"),
            ("checkpoint", "from the look at a group until its checkpoint was acknowledged"),
        ):
            yield Metric(
                f"{first}_{kind}_latency{name or '_avg'}_seconds",
                labels,
                f"{meaning} times {of}, in the newest window; absent where there was none.",
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
        "End of the newest window that rates and latencies are of.",
        subject,
    )


_FLOWS: Final = (
    Metric(
        "srm_flow_info",
        (*_FLOW, "flow", "application_id", "host"),
        "A flow, with the replicator that copies it.",
    ),
    Metric(
        "srm_flow_state",
        (*_FLOW, "state"),
        "1 for the state that the flow is in, 0 for the others.",
    ),
    Metric(
        "srm_flow_look_timestamp_seconds",
        _FLOW,
        "When the service last saw the flow; 0: not since it was started.",
    ),
    Metric("srm_flow_look_up", _FLOW, "Whether the latest look at the flow succeeded."),
    Metric("srm_flow_source_up", _FLOW, "Whether the source answered the latest look."),
    Metric(
        "srm_flow_source_heard_timestamp_seconds",
        _FLOW,
        "When the source last answered a slot of the replicator; absent where that is not known.",
    ),
    Metric("srm_flow_lag_offsets", _FLOW, "Offsets of the source that are still to be copied."),
    Metric("srm_flow_topics", (*_FLOW, "state"), "Topics that are selected, by state."),
    Metric("srm_flow_partitions", (*_FLOW, "state"), "Partitions of them, by state."),
    Metric(
        "srm_flow_lost_offsets",
        _FLOW,
        "Offsets of topics that exist which can never be copied: retention, truncation, refusals.",
    ),
    Metric(
        "srm_flow_groups",
        (*_FLOW, "can_go_on"),
        "Consumer groups by whether they could go on without the source now: yes, no, or unknown "
        "(no checkpoint, or the target does not answer).",
    ),
    Metric(
        "srm_replicator_up", _FLOW, "Whether a replicator has lately said that it copies the flow."
    ),
    Metric(
        "srm_replicator_heartbeat_timestamp_seconds",
        _FLOW,
        "Its last sign of life; absent where there never was one.",
    ),
    Metric(
        "srm_replicator_slots", (*_FLOW, "alive"), "Slots of the flow by whether they are alive."
    ),
    Metric(
        "srm_checkpoints_oldest_timestamp_seconds",
        _FLOW,
        "As of when the place of the group is known of which that is longest ago.",
    ),
    Metric(
        "srm_checkpoints_proof_timestamp_seconds",
        _FLOW,
        "When the emission began whose checkpoints were proven last.",
    ),
    Metric(
        "srm_checkpoints_proof_duration_seconds",
        _FLOW,
        "From then until the proof was known.",
    ),
    Metric("srm_checkpoints_sampled_groups", _FLOW, "Groups that this proof looked at."),
    Metric(
        "srm_checkpoints_proven_groups",
        _FLOW,
        "Those of them whose translations the records on both sides prove.",
    ),
    Metric(
        "srm_checkpoints_disproved_partitions",
        _FLOW,
        "Partitions in which a translation was found wrong; it is not emitted.",
    ),
    Metric("srm_checkpoints_withheld", _FLOW, "Checkpoints that were not emitted for that."),
    Metric(
        "srm_checkpoints_unread_groups",
        _FLOW,
        "Groups whose offsets could not be read, so that their checkpoints stand still.",
    ),
    Metric(
        "srm_forecast_lost_records",
        _FLOW,
        "Records not copied now, or when the source last answered: lost if it died now (RPO).",
    ),
    Metric(
        "srm_forecast_lost_at_most_records",
        _FLOW,
        "The same with what the source may have taken since; absent where that cannot be known.",
    ),
    Metric(
        "srm_forecast_lost_seconds",
        _FLOW,
        "Age of the oldest of them, or when the source last answered (RPO, lag in time); absent "
        "where it is not known.",
    ),
    Metric(
        "srm_forecast_read_again_records",
        _FLOW,
        "Records that groups would read again at most if the source died now.",
    ),
    Metric(
        "srm_forecast_unseen_groups",
        _FLOW,
        "Groups known by name only: auto.offset.reset would decide where they go on.",
    ),
    Metric(
        "srm_forecast_unknown_partitions",
        _FLOW,
        "Partitions of which the forecast knows nothing, or that are not copied.",
    ),
    *_window_metrics("flow", _FLOW),
)

_TOPICS: Final = (
    Metric(
        "srm_topic_state",
        (*_TOPIC, "state"),
        "1 for the state that the topic is in, 0 for the others.",
        "topic",
    ),
    Metric(
        "srm_topic_lag_offsets",
        _TOPIC,
        "Offsets of the source that are still to be copied.",
        "topic",
    ),
    Metric("srm_topic_partitions", _TOPIC, "Its partitions on the source.", "topic"),
    Metric(
        "srm_topic_copied_offsets",
        _TOPIC,
        "Offsets of its copy that were filled and that the log still holds.",
        "topic",
    ),
    *_window_metrics("topic", _TOPIC),
)

_GROUPS: Final = (
    Metric(
        "srm_group_checkpoint_timestamp_seconds",
        _GROUP,
        "As of when the group's place is known: its newest checkpoint, or the last emission that "
        "found it unchanged.",
        "group",
    ),
    Metric("srm_group_checkpoint_partitions", _GROUP, "Partitions with a checkpoint.", "group"),
    Metric(
        "srm_group_read_again_records",
        _GROUP,
        "Records that it would read again at most if the source died now.",
        "group",
    ),
    Metric(
        "srm_group_skipped_records",
        _GROUP,
        "Records that it has still to read and the target holds no more.",
        "group",
    ),
    Metric(
        "srm_group_can_go_on",
        _GROUP,
        "Whether it could go on without the source now; absent where that is not known.",
        "group",
    ),
    Metric(
        "srm_group_proven",
        _GROUP,
        "Whether records on both sides proved its checkpoints at the last emission.",
        "group",
    ),
    Metric(
        "srm_group_followers",
        _GROUP,
        "Its clients that follow routes, as they have lately said on the target.",
        "group",
    ),
)

_MOVES: Final = (
    Metric(
        "srm_move_running",
        (*_MOVE, "step"),
        "Moves under way: from the hold until the report, by the step that was reached.",
        "move",
    ),
    Metric(
        "srm_move_hold_timestamp_seconds",
        _MOVE,
        "When the oldest move that holds clients first began to; absent where nobody is held.",
        "move",
    ),
    Metric(
        "srm_move_last_end_timestamp_seconds",
        _MOVE,
        "When the last move ended: reported, or released.",
        "move",
    ),
    Metric("srm_move_last_ok", _MOVE, "Whether it was clean; a released one is not.", "move"),
    Metric(
        "srm_move_last_rpo_records",
        _MOVE,
        "Records it lost; absent until known: unplanned, until the source returns.",
        "move",
    ),
    Metric(
        "srm_move_last_rpo_at_most_records",
        _MOVE,
        "Records it lost, at most; absent where no bound is known.",
        "move",
    ),
    Metric("srm_move_last_rpo_seconds", _MOVE, "For how long they were written.", "move"),
    Metric(
        "srm_move_last_rto_seconds",
        _MOVE,
        "From its hold until the last group worked on the target; given up: until it was released.",
        "move",
    ),
    Metric("srm_move_last_read_again_records", _MOVE, "Records its groups read again.", "move"),
    Metric(
        "srm_move_last_residue_records",
        _MOVE,
        "Records that were written to the old side after it.",
        "move",
    ),
    Metric("srm_drill_running", _FLOW, "Drills under way.", "move"),
    Metric("srm_drill_last_timestamp_seconds", _FLOW, "When the last drill began.", "move"),
    Metric("srm_drill_last_ok", _FLOW, "Whether it proved everything.", "move"),
    Metric("srm_drill_last_rto_seconds", _FLOW, "Time without service that it estimates.", "move"),
    Metric("srm_drill_last_groups", _FLOW, "Groups that it rehearsed.", "move"),
    Metric("srm_drill_last_proven_groups", _FLOW, "Those of them that it proved.", "move"),
)

_SERVICE: Final = (
    Metric("srm_service_info", ("version",), "The service.", "service"),
    Metric(
        "srm_target_look_timestamp_seconds",
        ("target",),
        "When the service last looked at a target; 0: not yet.",
        "service",
    ),
    Metric("srm_target_up", ("target",), "Whether that look succeeded.", "service"),
)

METRICS: Final = {
    metric.name: metric for metric in (*_FLOWS, *_TOPICS, *_GROUPS, *_MOVES, *_SERVICE)
}
"""All of them by name."""
