"""The thresholds of signs of life fit together."""

from __future__ import annotations

import itertools

from srm.domain.flow_state import liveness_thresholds


def test_each_threshold_is_longer_than_the_one_before_it() -> None:
    """A slot called silent has lost its partitions; a driver cures itself before it is lost."""
    table = [
        liveness_thresholds.HEARTBEAT_S,
        liveness_thresholds.ECHO_S,
        liveness_thresholds.LOOK_S,
        liveness_thresholds.SLOT_DEAD_S,
        liveness_thresholds.SILENT_S,
        liveness_thresholds.DEAF_S,
        liveness_thresholds.LOST_S,
        liveness_thresholds.STARTUP_S,
    ]

    assert all(longer >= 1.2 * shorter for shorter, longer in itertools.pairwise(table))
    assert liveness_thresholds.ECHO_S >= 2 * liveness_thresholds.HEARTBEAT_S


def test_silence_is_told_after_ten_seconds_and_where_there_never_was_a_sign() -> None:
    assert not liveness_thresholds.is_silent(10_000)
    assert liveness_thresholds.is_silent(10_001)
    assert liveness_thresholds.is_silent(None)
