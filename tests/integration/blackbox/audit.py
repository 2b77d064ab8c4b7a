"""The harness's own count, from what clients wrote down; it asks neither srm nor its files."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

_READ_S = 90.0


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a client's record; the kinds are those of ``clients/record.py``."""

    time_ms: int
    kind: str
    cluster: str
    topic: str
    partition: int
    offset: int
    id: str


def read_events(path: Path) -> list[Event]:
    """Read a record; a line that is still being written is left out."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    events = []
    for line in text[: text.rfind("\n") + 1].splitlines():
        at, kind, cluster, topic, partition, offset, name = line.split("\t")
        events.append(Event(int(at), kind, cluster, topic, int(partition), int(offset), name))
    return events


@dataclass(frozen=True)
class GroupCount:
    """What a group made of the acknowledged records; ``twice`` counts repetitions."""

    processed: int
    lost: int
    twice: int
    examples: tuple[str, ...]

    @property
    def clean(self) -> bool:
        return self.lost == self.twice == 0


def count_group(
    acked: Collection[Event], undone: Collection[str], processed: Iterable[Event]
) -> GroupCount:
    """Compare a group's record with what it had to process.

    ``undone`` are ids of aborted transactions: a reader of uncommitted data may meet them on the
    cluster they were written to, and nobody has to.
    """
    times = Counter(event.id for event in processed if event.kind == "processed")
    for name in undone:
        times.pop(name, None)
    expected = {event.id: event for event in acked}
    lost = [event for name, event in expected.items() if name not in times]
    again = {name: count - 1 for name, count in times.items() if count > 1}
    return GroupCount(
        processed=sum(times.values()),
        lost=len(lost),
        twice=sum(again.values()),
        examples=(
            *(f"lost {e.id} ({e.cluster} {e.topic}-{e.partition} at {e.offset})" for e in lost[:5]),
            *(f"twice {name}" for name in list(again)[:5]),
        ),
    )


def read_again(events: Collection[Event], since_ms: int) -> int:
    """Count what a group has processed since a time and had processed before it."""
    before = {e.id for e in events if e.kind == "processed" and e.time_ms < since_ms}
    return sum(e.kind == "processed" and e.time_ms >= since_ms and e.id in before for e in events)


def from_first_processed(
    acked: Iterable[Event], processed: Iterable[Event], cluster: str
) -> list[Event]:
    """What a group that began at the end of the logs of ``cluster`` has to process.

    In each partition it began at the first record it processed there; of other clusters, all.
    """
    began: dict[int, int] = {}
    for event in processed:
        if event.kind == "processed" and event.cluster == cluster and "." not in event.topic:
            began[event.partition] = min(event.offset, began.get(event.partition, event.offset))
    return [
        event
        for event in acked
        if event.cluster != cluster or event.offset >= began.get(event.partition, event.offset + 1)
    ]


def read_ids(bootstrap: str, topic: str) -> Counter[str]:
    """Read the committed records of a topic to the end it has now; return their ids."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "audit",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    found: Counter[str] = Counter()
    try:
        partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
        unread, deadline = set(partitions), time.monotonic() + _READ_S
        while unread:
            assert time.monotonic() < deadline, f"{topic} was not read to its end"
            message = consumer.poll(0.2)
            if message is None:
                continue
            if message.error() is None:
                found[message.value().decode()] += 1
            elif message.error().name() == "_PARTITION_EOF":
                unread.discard(message.partition())
            else:
                raise KafkaException(message.error())
    finally:
        consumer.close()
    return found


def not_copied(acked: Iterable[Event], copies: Mapping[str, int]) -> list[str]:
    """Name acknowledged records that are not in the copy, or more than once."""
    return [event.id for event in acked if copies.get(event.id, 0) != 1]
