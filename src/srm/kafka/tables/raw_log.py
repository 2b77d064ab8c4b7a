"""The raw metrics of a flow on its target: read up to their end, or followed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow
from srm.errors import UnavailableError
from srm.kafka.tables.topic_tail import KafkaTopicTail

MOST_BYTES: Final = 32 * 1024 * 1024
"""Amount that one process counts with the time and CPU of a Spark start."""

_FOLLOW_WAIT_MS: Final = 5_000
_TIMEOUT_S: Final = 60.0


def follow_raw_metrics(
    flow: Flow, consumer_props: Mapping[str, str], since_ms: int
) -> KafkaTopicTail:
    """Follow the raw metrics of a flow, with few requests: news may come seconds late.

    Args:
        flow: the flow.
        consumer_props: librdkafka consumer properties of its target.
        since_ms: begin with the records written then, epoch milliseconds.
    """
    topic = internal_topics.raw_metrics(flow.source)
    return KafkaTopicTail(
        consumer_props, topic, fetch_wait_ms=_FOLLOW_WAIT_MS, since_ms=since_ms, at_once=False
    )


def read_raw_metrics(
    flow: Flow,
    consumer_props: Mapping[str, str],
    since_ms: int,
    most_bytes: int = MOST_BYTES,
    timeout_s: float = _TIMEOUT_S,
) -> list[bytes] | None:
    """Return the values of the raw metrics since a time, None where they are more than so much.

    Raises:
        UnavailableError: the end was not reached in time.
        SrmError: the cluster refuses the read.
    """
    topic = internal_topics.raw_metrics(flow.source)
    found: list[bytes] = []
    size = 0
    deadline = time.monotonic() + timeout_s
    with KafkaTopicTail(consumer_props, topic, since_ms=since_ms) as tail:
        while not tail.caught_up:
            new = [value for _, value in tail.poll(1.0) if value]
            found += new
            size += sum(map(len, new))
            if size > most_bytes:
                return None
            if time.monotonic() > deadline:
                raise UnavailableError(
                    f"{topic} on cluster {flow.target}: its end is not reached in "
                    f"{timeout_s:.0f} s; retry"
                )
    return found
