"""Table of the metrics of flows, groups and moves in ``/metrics``: name, labels, meaning.

Names end in the base unit, seconds or bytes. All are gauges: a value found by a look may fall.
Times are timestamps, not ages, so that a stalled value is visible.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, get_args

from srm.domain.flow_state.replication_records import State as ReportedState
from srm.engine.status.status import State as HealthState
from srm.engine.status.status import TopicState


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric, with a series for each combination of values of its ``labels``."""

    name: str
    labels: tuple[str, ...]
    meaning: str

    @property
    def unit(self) -> str:
        return next((unit for unit in UNITS if self.name.endswith(f"_{unit}")), "")

    @property
    def is_info(self) -> bool:
        return self.name.endswith("_info")


UNITS: Final = {
    "bytes_per_second": "By/s",
    "records_per_second": "{record}/s",
    "seconds": "s",
    "records": "{record}",
    "offsets": "{offset}",
}
"""Units at the end of names, with those of OTLP."""
_FLOW: Final = ("source", "target")
_TOPIC: Final = (*_FLOW, "topic")
_GROUP: Final = (*_FLOW, "group")
_MOVE: Final = (*_FLOW, "operation", "mode")

STATES: Final = (*get_args(HealthState), "UNKNOWN")
TOPIC_HEALTH: Final = STATES[:3]
TOPIC_STATES: Final = get_args(TopicState)
PARTITION_STATES: Final = (*get_args(ReportedState), "unknown")

_WINDOW: Final = """
srm_SUBJECT_rate_min_bytes_per_second: Bytes per second written to the slowest partition, in the newest window.
srm_SUBJECT_replication_latency_min_seconds: Minimum time from a record's timestamp until the target acknowledged it, in the newest window; absent without one.
srm_SUBJECT_checkpoint_latency_min_seconds: Minimum time from the look at a group until its checkpoint was acknowledged, in the newest window; absent without one.
srm_SUBJECT_rate_bytes_per_second: Bytes per second written to the target, in the newest window.
srm_SUBJECT_replication_latency_avg_seconds: Mean time from a record's timestamp until the target acknowledged it, in the newest window; absent without one.
srm_SUBJECT_checkpoint_latency_avg_seconds: Mean time from the look at a group until its checkpoint was acknowledged, in the newest window; absent without one.
srm_SUBJECT_rate_max_bytes_per_second: Bytes per second written to the fastest partition, in the newest window.
srm_SUBJECT_replication_latency_max_seconds: Maximum time from a record's timestamp until the target acknowledged it, in the newest window; absent without one.
srm_SUBJECT_checkpoint_latency_max_seconds: Maximum time from the look at a group until its checkpoint was acknowledged, in the newest window; absent without one.
srm_SUBJECT_rate_records_per_second: Records copied per second in the newest window.
srm_SUBJECT_window_end_timestamp_seconds: End of the newest window, which the rates and latencies cover.
"""  # noqa: E501
"""Metrics of the newest window of a subject."""
_TABLES: Final = (
    (
        _FLOW,
        """
srm_flow_info{flow,application_id,host}: A flow and its replicator.
srm_flow_state{state}: 1 for the state of the flow, 0 for the others.
srm_flow_look_timestamp_seconds: Time of the last successful look at the flow; 0: none since the service started.
srm_flow_look_up: 1 if the latest look at the flow succeeded, else 0.
srm_flow_source_up: 1 if the source answered the latest look, else 0.
srm_flow_source_heard_timestamp_seconds: Time at which the source last answered a slot of the replicator; absent if unknown.
srm_flow_lag_offsets: Source offsets not copied yet.
srm_flow_topics{state}: Selected topics by state.
srm_flow_partitions{state}: Partitions of the selected topics by state.
srm_flow_lost_offsets: Offsets of existing topics that can never be copied: retention, truncation, refusals.
srm_flow_groups{can_go_on}: Consumer groups by whether they could resume without the source now: yes, no, or unknown (no known position, or the target does not answer).
srm_replicator_up: 1 if the replicator has sent a recent heartbeat, else 0.
srm_replicator_heartbeat_timestamp_seconds: Time of its last heartbeat; absent if there never was one.
srm_replicator_slots{alive}: Slots of the flow by whether they are alive.
srm_checkpoints_oldest_timestamp_seconds: Time as of which the position of the most outdated group is known.
srm_checkpoints_proof_timestamp_seconds: Start of the last emission whose checkpoints were proven.
srm_checkpoints_proof_duration_seconds: Time from that start until the proof was complete.
srm_checkpoints_sampled_groups: Groups that this proof checked.
srm_checkpoints_proven_groups: Checked groups whose translations the records on both sides prove.
srm_checkpoints_disproved_partitions: Partitions with a wrong translation, which is not emitted.
srm_checkpoints_withheld: Checkpoints not emitted for this reason.
srm_checkpoints_unread_groups: Groups whose offsets were not read, so that their checkpoints do not advance.
srm_forecast_lost_records: Records not copied when the source last answered: lost if it failed now (RPO).
srm_forecast_lost_at_most_records: The same plus the records that the source may have accepted since; absent if unknown.
srm_forecast_lost_seconds: Age of the oldest such record, or time since the source last answered (RPO, lag in time); absent if unknown.
srm_forecast_read_again_records: Maximum number of records that groups would read again if the source failed now.
srm_forecast_unseen_groups: Groups known by name only: auto.offset.reset would decide where they resume.
srm_forecast_unknown_partitions: Partitions that are unknown to the forecast or not copied.
"""  # noqa: E501
        + _WINDOW.replace("SUBJECT", "flow"),
    ),
    (
        _TOPIC,
        """
srm_topic_state{state}: 1 for the state of the topic, 0 for the others.
srm_topic_lag_offsets: Source offsets not copied yet.
srm_topic_partitions: Partitions on the source.
srm_topic_copied_offsets: Filled offsets of the remote topic that its log still holds.
"""
        + _WINDOW.replace("SUBJECT", "topic"),
    ),
    (
        _GROUP,
        """
srm_group_checkpoint_timestamp_seconds: Time as of which the position is known: the newest checkpoint, or the last emission that found it unchanged.
srm_group_checkpoint_partitions: Partitions with a checkpoint.
srm_group_read_again_records: Maximum number of records that the group would read again if the source failed now.
srm_group_skipped_records: Records not read yet that the target no longer holds.
srm_group_can_go_on: 1 if the group could resume without the source now, else 0; absent if unknown.
srm_group_proven: 1 if records on both sides proved its checkpoints at the last emission, else 0.
srm_group_followers: Clients that follow routes, by their recent heartbeats on the target.
""",  # noqa: E501
    ),
    (
        _MOVE,
        """
srm_move_running{step}: Running moves, from the hold until the report, by the last step reached.
srm_move_hold_timestamp_seconds: Start of the oldest hold that still holds clients; absent without one.
srm_move_last_end_timestamp_seconds: End of the last move: reported, or released.
srm_move_last_ok: 1 if it was clean, 0 if unclean or released.
srm_move_last_rpo_records: Records lost; absent until known: after an unplanned move, until the source returns.
srm_move_last_rpo_at_most_records: Maximum number of records lost; absent without a known bound.
srm_move_last_rpo_seconds: Time span of the lost records.
srm_move_last_rto_seconds: Time from the hold until the last group worked on the target, or until the release.
srm_move_last_read_again_records: Records its groups read again.
srm_move_last_residue_records: Records written to the old side after the move.
""",  # noqa: E501
    ),
    (
        _FLOW,
        """
srm_drill_running: Running drills.
srm_drill_last_timestamp_seconds: Start of the last drill.
srm_drill_last_ok: 1 if that drill proved everything, else 0.
srm_drill_last_rto_seconds: Estimated time without service.
srm_drill_last_groups: Groups rehearsed.
srm_drill_last_proven_groups: Groups proven.
""",
    ),
    (
        (),
        """
srm_service_info{version}: Version of the service.
srm_target_look_timestamp_seconds{target}: Time of the last look at the target; 0: none yet.
srm_target_up{target}: 1 if that look succeeded, else 0.
""",
    ),
)
"""Labels, and metrics with these as lines ``name{further,labels}: meaning``."""
METRICS: Final = {
    name: Metric(name, (*labels, *filter(None, more.split(","))), meaning)
    for labels, table in _TABLES
    for name, more, meaning in re.findall(r"^(\w+)(?:{([\w,]+)})?: (.+)$", table, re.MULTILINE)
}
"""All metrics by name."""
