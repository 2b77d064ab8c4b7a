"""Waiting for messages costs nothing."""

from __future__ import annotations

from typing import Any, cast

import pytest

from srm.kafka.admin.clients import drain


class Silent:
    """A consumer without news, which counts whole milliseconds as librdkafka does."""

    def __init__(self) -> None:
        self.waited_ms: list[int] = []

    def poll(self, wait_s: float) -> None:
        self.waited_ms.append(int(wait_s * 1000))


@pytest.mark.parametrize(("wait_s", "waited_ms"), [(0, 0), (0.0004, 1), (0.2, 200), (0.2001, 201)])
def test_the_rest_of_a_time_is_waited_for_though_it_is_less_than_a_millisecond(
    wait_s: float, waited_ms: int
) -> None:
    """Who waited until a deadline asked 70 times in the last millisecond before it."""
    silent = Silent()

    assert drain(cast("Any", silent), wait_s) == []
    assert silent.waited_ms == [waited_ms]
