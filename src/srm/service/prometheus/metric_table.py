"""Metrics of flows, groups and moves in ``/metrics``, read from the table metrics.txt.

Names end in the base unit, seconds or bytes. All are gauges: a value found by a look may fall.
Times are timestamps, not ages, so that a stalled value is visible.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
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

STATES: Final = (*get_args(HealthState), "UNKNOWN")
TOPIC_HEALTH: Final = STATES[:3]
TOPIC_STATES: Final = get_args(TopicState)
PARTITION_STATES: Final = (*get_args(ReportedState), "unknown")


def _read() -> Iterator[Metric]:
    labels: list[str] = []
    for line in Path(__file__).with_name("metrics.txt").read_text("utf-8").splitlines():
        if line.startswith("labels"):
            _, *labels = line.split()
        elif found := re.fullmatch(r"(\w+)(?:{([\w,]+)})?: (.+)", line):
            name, more, meaning = found.groups(default="")
            yield Metric(name, (*labels, *filter(None, more.split(","))), meaning)


METRICS: Final = {metric.name: metric for metric in _read()}
"""All metrics by name."""
