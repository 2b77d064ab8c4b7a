"""Flows and a clock for tests."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from srm.config.model import FlowConfig
from srm.domain.names.policy import DefaultReplicationPolicy
from srm.domain.names.record_headers import RecordSettings
from srm.domain.names.topics import Flow


@dataclass
class FakeClock:
    """Epoch milliseconds under the control of a test; pass the instance as ``now_ms``."""

    time_ms: int = 1_700_000_000_000

    def __call__(self) -> int:
        """Return the current time in epoch milliseconds."""
        return self.time_ms

    def advance(self, milliseconds: int) -> None:
        """Let time go by."""
        if milliseconds < 0:
            raise ValueError(f"time goes forward only, not by {milliseconds} ms")
        self.time_ms += milliseconds


SECOND = timedelta(seconds=1)
P_TO_B = Flow("P", "B")


def flow_config(flow: Flow = P_TO_B, **settings: Any) -> FlowConfig:
    """Return usual settings with some replaced."""
    usual = FlowConfig(
        flow=flow,
        enabled=True,
        policy=DefaultReplicationPolicy(),
        topics=("T.*",),
        topics_exclude=(),
        groups=(".*",),
        groups_exclude=(),
        config_properties_exclude=(),
        tasks_max=1,
        replication_factor=1,
        offset_syncs_replication_factor=1,
        checkpoints_replication_factor=1,
        heartbeats_replication_factor=1,
        internal_replication_factor=1,
        refresh_topics_interval=SECOND,
        sync_topic_configs_enabled=True,
        sync_topic_configs_interval=SECOND,
        emit_checkpoints_enabled=True,
        emit_checkpoints_interval=SECOND,
        sync_group_offsets_enabled=True,
        sync_group_offsets_interval=None,
        refresh_groups_interval=None,
        forget_groups_after=300 * SECOND,
        emit_heartbeats_enabled=False,
        emit_heartbeats_interval=SECOND,
        heartbeats_replication_enabled=False,
        emit_offset_syncs_enabled=True,
        offset_syncs_location="source",
        reverse_checkpointing_enabled=True,
        reverse_checkpointed_topics=(),
        checkpoints_engine="task",
        proof_budget=200,
        drill_schedule=None,
        metrics_interval=SECOND,
        metrics_windows_continuous=True,
        data_loss_policy="stop",
        max_bytes_per_second=None,
        merge_bytes=1 << 20,
        linger_ms=5,
        isolation_level="read_committed",
        records=RecordSettings(),
    )
    return replace(usual, **settings)
