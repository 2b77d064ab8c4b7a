"""Latency of checkpoints, in the raw metrics topic together with the metrics of slots."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from srm.domain.names.topics import Flow

LATENCY: Final = ("latency_ms_min", "latency_ms_max", "latency_ms_sum", "latency_count")
"""Fields of a :class:`CheckpointMetric` in a topic's list in a record, in order."""


@dataclass(frozen=True, slots=True)
class CheckpointMetric:
    """Latency of the checkpoints of one upstream topic in an emission that ended at ``time_ms``.

    ``latency_count`` is the number of checkpoints. The latency of one begins just before reading
    its group's commits on the source. It ends when the target acknowledges the checkpoint.
    ``topic`` is the committed topic on the source, a remote one for a reverse checkpoint.
    ``remote_topic`` is where the group continues on the target.
    """

    time_ms: int
    interval_ms: int
    source: str
    target: str
    topic: str
    remote_topic: str
    latency_ms_min: int
    latency_ms_max: int
    latency_ms_sum: int
    latency_count: int


def checkpoint_metrics(
    flow: Flow, began_ms: int, ended_ms: int, taken: Iterable[tuple[str, str, int]]
) -> list[CheckpointMetric]:
    """Sum up one emission.

    Args:
        flow: flow of the checkpoints.
        began_ms: start of the emission.
        ended_ms: acknowledgement of the last checkpoint.
        taken: topic, remote topic and latency in milliseconds of each checkpoint.
    """
    of_topics: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for topic, remote_topic, latency_ms in taken:
        of_topics[topic, remote_topic].append(max(0, latency_ms))
    moment = (ended_ms, max(1, ended_ms - began_ms), flow.source, flow.target)
    return [
        CheckpointMetric(*moment, *names, min(found), max(found), sum(found), len(found))
        for names, found in sorted(of_topics.items())
    ]


def encode_checkpoints(metrics: Iterable[CheckpointMetric]) -> list[bytes]:
    """Encode metrics as raw record values, one for each emission, with no ``topics``."""
    records: dict[tuple[int, int, str, str], list[dict[str, Any]]] = {}
    for metric in metrics:
        moment = (metric.time_ms, metric.interval_ms, metric.source, metric.target)
        records.setdefault(moment, []).append(
            {
                "topic": metric.topic,
                "remote_topic": metric.remote_topic,
                "latency_ms": [getattr(metric, name) for name in LATENCY],
            }
        )
    names = ("time_ms", "interval_ms", "source", "target")
    return [
        json.dumps(
            {**dict(zip(names, moment, strict=True)), "topics": [], "checkpoints": entries},
            separators=(",", ":"),
        ).encode()
        for moment, entries in records.items()
    ]


def checkpoints_of(
    moment: Mapping[str, Any], entries: Iterable[Mapping[str, Any]]
) -> tuple[CheckpointMetric, ...]:
    """Return the metrics of a raw record's entries; ``moment`` has its other fields.

    Raises:
        KeyError, TypeError, ValueError: the fields are not the required ones.
    """
    return tuple(
        CheckpointMetric(
            **moment,
            topic=entry["topic"],
            remote_topic=entry["remote_topic"],
            **dict(zip(LATENCY, entry["latency_ms"], strict=True)),
        )
        for entry in entries
    )
