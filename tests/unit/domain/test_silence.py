"""The thresholds of signs of life fit together."""

from __future__ import annotations

import itertools

from srm.domain import silence


def test_each_threshold_is_longer_than_the_one_before_it() -> None:
    """A slot called silent has lost its partitions; a driver cures itself before it is lost."""
    table = [
        silence.HEARTBEAT_S,
        silence.ECHO_S,
        silence.LOOK_S,
        silence.SLOT_DEAD_S,
        silence.SILENT_S,
        silence.DEAF_S,
        silence.LOST_S,
        silence.STARTUP_S,
    ]

    assert all(longer >= 1.2 * shorter for shorter, longer in itertools.pairwise(table))
    assert silence.ECHO_S >= 2 * silence.HEARTBEAT_S


def test_silence_is_told_after_ten_seconds_and_where_there_never_was_a_sign() -> None:
    assert not silence.is_silent(10_000)
    assert silence.is_silent(10_001)
    assert silence.is_silent(None)
