"""Results: their fields, percentiles, medians, and files."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final

MEGABYTE: Final = 1e6


@dataclass(frozen=True)
class Latency:
    """Milliseconds from just before a record is produced until a probe has it; None: not measured.

    ``floor``: the same for a probe on the source, in the same seconds.
    """

    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None
    floor: Mapping[str, float] | None = None


@dataclass(frozen=True)
class Result:
    """One engine in one case.

    Attributes:
        case: name of the case.
        engine: ``srm``, ``mm2-default``, ``mm2-tuned`` or ``socket-copy``.
        title: case in words.
        method: key of the report's method section.
        records: copied while the figures ran.
        bytes: their values' bytes, before compression.
        wall_seconds: from the release of the records, to a warm engine that waits for them, until
            the last one is copied.
        cpu_seconds: user and system time of the engine's process tree in that time.
        latency_ms: see :class:`Latency`.
        target_broker_cpu_seconds: of the target's broker in that time.
        source_broker_cpu_seconds: of the source's broker in that time.
        first_record_seconds: from the start of the engine's process to its first copied record.
        topic_creation_to_first_record_seconds: from the creation of the case's topic.
        idle_cpu_percent: of one core, with nothing to copy.
        resident_megabytes: largest sum of PSS of the process tree in that time.
        details: figures of some cases only.
    """

    case: str
    engine: str
    title: str
    method: str
    records: int = 0
    bytes: int = 0
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    records_per_second: float = 0.0
    megabytes_per_second: float = 0.0
    records_per_cpu_second: float = 0.0
    megabytes_per_cpu_second: float = 0.0
    latency_ms: Latency = Latency()
    target_broker_cpu_seconds: float | None = None
    source_broker_cpu_seconds: float | None = None
    first_record_seconds: float | None = None
    topic_creation_to_first_record_seconds: float | None = None
    idle_cpu_percent: float | None = None
    resident_megabytes: float | None = None
    repeats: int = 1
    details: Mapping[str, Any] = field(default_factory=dict)
    machine: Mapping[str, Any] = field(default_factory=dict)

    @property
    def system_cpu_seconds(self) -> float | None:
        """CPU of the engine and of both brokers."""
        brokers = self.source_broker_cpu_seconds, self.target_broker_cpu_seconds
        if brokers[0] is None or brokers[1] is None:
            return None
        return self.cpu_seconds + brokers[0] + brokers[1]

    @property
    def system_cpu_seconds_per_million(self) -> float | None:
        """CPU seconds of the whole system for a million records."""
        return self._per_million(self.system_cpu_seconds)

    @property
    def target_broker_cpu_seconds_per_million(self) -> float | None:
        """CPU seconds of the target's broker for a million records."""
        return self._per_million(self.target_broker_cpu_seconds)

    @property
    def cores(self) -> float:
        """CPU seconds of the engine in a second."""
        return self.cpu_seconds / self.wall_seconds if self.wall_seconds else 0.0

    @property
    def p50_above_floor_ms(self) -> float | None:
        """Median latency above that of a probe on the source itself."""
        if self.latency_ms.p50 is None or not self.latency_ms.floor:
            return None
        return max(self.latency_ms.p50 - self.latency_ms.floor["p50"], 0.001)

    def _per_million(self, seconds: float | None) -> float | None:
        return None if seconds is None or not self.records else seconds / self.records * 1e6


def with_rates(result: Result) -> Result:
    """Compute the figures that follow from records, bytes and seconds."""
    megabytes = result.bytes / MEGABYTE
    return replace(
        result,
        wall_seconds=round(result.wall_seconds, 3),
        cpu_seconds=round(result.cpu_seconds, 3),
        records_per_second=_per(result.records, result.wall_seconds),
        megabytes_per_second=_per(megabytes, result.wall_seconds),
        records_per_cpu_second=_per(result.records, result.cpu_seconds),
        megabytes_per_cpu_second=_per(megabytes, result.cpu_seconds),
    )


def _per(amount: float, seconds: float) -> float:
    return round(amount / seconds, 2) if seconds > 0 else 0.0


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest value that at least ``share`` of the ordered values do not exceed."""
    if not ordered:
        raise ValueError("no values")
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def percentiles(values: Iterable[float]) -> dict[str, float]:
    """Return p50, p95, p99 and max."""
    ordered = sorted(values)
    figures = {f"p{share}": percentile(ordered, share / 100) for share in (50, 95, 99)}
    return {name: round(v, 3) for name, v in (*figures.items(), ("max", ordered[-1]))}


_METRIC: Final[Mapping[str, Callable[[Result], float]]] = {
    "copy": lambda r: r.records_per_cpu_second,
    "latency": lambda r: r.latency_ms.p50 or 0.0,
    "idle": lambda r: r.idle_cpu_percent or 0.0,
    "start": lambda r: r.first_record_seconds or 0.0,
}


def median(results: Sequence[Result]) -> Result:
    """Return the median of repeated results, with the spread in its details.

    The median is by the main figure of the method: records per CPU second, p50, idle CPU or start
    time. For an even number it is the lower of the two.
    """
    metric = _METRIC.get(results[0].method, _METRIC["copy"])
    ordered = sorted(results, key=metric)
    middle = ordered[(len(ordered) - 1) // 2]
    if len(results) == 1:
        return middle
    spread = {"repeats": [round(metric(result), 3) for result in results]}
    return replace(middle, repeats=len(results), details={**middle.details, **spread})


def save(result: Result, folder: Path) -> Path:
    """Write one file, replacing that of an earlier run."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{result.case}-{result.engine}.json"
    path.write_text(json.dumps(asdict(result), indent=2) + "\n")
    return path


def load_all(folder: Path) -> list[Result]:
    """Read all results; files of other programs and versions are left out."""
    names = {f.name for f in fields(Result)}
    results = []
    for path in sorted(folder.glob("*.json")):
        content = json.loads(path.read_text())
        if set(content) == names:
            latency = Latency(**content.pop("latency_ms"))
            results.append(Result(**content, latency_ms=latency))
    return results
