"""Keys of the metrics; each is a setting of its flow."""

from __future__ import annotations

from typing import Final

from srm.config.config_key import ConfigKey

METRICS_KEYS: Final = (
    ConfigKey(
        "metrics.interval.seconds",
        "seconds",
        "5",
        "How often raw metrics are written per partition.",
        origin="ours",
        attribute="metrics_interval",
    ),
    ConfigKey(
        "metrics.windows.continuous",
        "boolean",
        "true",
        "Whether the replicator computes the metrics' windows while it copies, seconds after they "
        "end. Without it they are as old as the last `srm_metrics_aggregation`.",
        origin="ours",
        attribute="metrics_windows_continuous",
    ),
)
