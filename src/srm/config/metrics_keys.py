"""Keys of the metrics; each is a setting of its flow."""

from __future__ import annotations

from typing import Final

from srm.config.config_key import our_key

METRICS_KEYS: Final = (
    our_key(
        "metrics.interval.seconds",
        "seconds",
        "5",
        "How often raw metrics are written per partition.",
    ),
    our_key(
        "metrics.windows.continuous",
        "boolean",
        "true",
        "Whether the replicator computes the metrics' windows while it copies, seconds after they "
        "end. Without it they are as old as the last `srm_metrics_aggregation`.",
    ),
)
