"""Waits until everything is copied, measures how long that takes, and sees who stands still.

A partition has converged when the target has the last record of its source, as a reported position
may be of before a truncation, and when the position is at the ends of both logs. Consumers in Java
commit there, past markers, and the map has to translate that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from confluent_kafka import Consumer, IsolationLevel, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from tests.faults.campaign.brokers import Pair
from tests.faults.campaign.elections import persistently
from tests.faults.campaign.history import TopicHistory
from tests.faults.campaign.workload import LAST, Workload
from tests.integration.copying import CopyLab
from tests.waiting import Stopwatch

from srm.domain.flow_state.replication_records import AssignedPartition, PartitionStatus
from srm.domain.names.topics import TopicPartition
from srm.domain.offset_map.map_records import CopyId
from srm.errors import SrmError

STILL_S: Final = 25.0
"""How long a partition may stand still on a quiet machine: claims and the longest back-off."""
RETRY_S: Final = 35.0
"""How much longer where a fault stops it: it tries again each 30 s, or with the next cause."""
MOST_S: Final = 600.0
HANGING_S: Final = 20.0
"""After which a transaction is left open, and read up to: Kafka has bugs that leave one hanging."""
_LOOK_S: Final = 0.3


@dataclass
class _Seen:
    """How far a partition was when it moved last, and when that was."""

    place: tuple[int, int]
    at: float


class Convergence:
    """One wait. ``problems`` say who has not come to the end."""

    def __init__(
        self, pair: Pair, lab: CopyLab, topics: Sequence[TopicHistory], policy: str
    ) -> None:
        self._pair = pair
        self._lab = lab
        self._topics = topics
        self._policy = policy
        self._partitions = [(topic, p) for topic in topics for p in topic.partitions]
        self._seen: dict[CopyId, _Seen] = {}
        self._arrived: set[TopicPartition] = set()
        self._records: Counter[TopicPartition] = Counter()
        self.seconds = 0.0
        self.problems: list[str] = []

    def wait(self, workload: Workload) -> None:
        """Wait until every partition is through, or has stopped as its scenario has it."""
        watch = Stopwatch()
        consumer = self._consumer()
        try:
            places = [(p.topic, p.partition) for _, p in self._partitions]
            workload.write_last(places, self._pair.source_bootstrap)
            while True:
                now = watch.elapsed_s
                try:
                    self._take_arrived(consumer)
                    waiting = self._unsettled(now)
                except (SrmError, KafkaException) as error:
                    waiting = {str(error): False}
                if not waiting or now > MOST_S or any(waiting.values()):
                    break
        finally:
            consumer.close()
        self.seconds = watch.wall_s
        self.problems += [
            f"{'stands still' if still else 'not copied in time'}: {text}"
            for text, still in waiting.items()
        ]

    def _consumer(self) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": self._pair.target_bootstrap,
                "group.id": "srm-campaign",
                "enable.auto.commit": False,
                "isolation.level": "read_uncommitted",
                "log_level": 0,
            }
        )
        starts = []
        for _, p in self._partitions:
            place = KafkaPartition(p.target_topic, p.partition)
            _, end = persistently(
                "ends", partial(consumer.get_watermark_offsets, place, timeout=60)
            )
            starts.append(KafkaPartition(p.target_topic, p.partition, end))
        consumer.assign(starts)
        return consumer

    def _take_arrived(self, consumer: Consumer) -> None:
        for message in consumer.consume(10_000, _LOOK_S):
            if message.error() is None:
                place = TopicPartition(message.topic(), message.partition())
                self._records[place] += 1  # markers of claims are no progress
                if message.value() == LAST:
                    self._arrived.add(place)

    def _unsettled(self, now: float) -> dict[str, bool]:
        """Describe the partitions that are not where they should end; whether they stand still."""
        places = [TopicPartition(p.topic, p.partition) for _, p in self._partitions]
        copies = [TopicPartition(p.target_topic, p.partition) for _, p in self._partitions]
        stable = self._lab.source.log_ends(places)
        ends = high_watermarks(self._pair.source_bootstrap, places)
        target_ends = high_watermarks(self._pair.target_bootstrap, copies)
        reached = self._reached()
        found = {}
        for (topic, p), place, copy in zip(self._partitions, places, copies, strict=True):
            end, target_end = ends[place], target_ends[copy]
            hangs = stable[place] < end
            if hangs and now > HANGING_S:
                end = stable[place]  # the source's own brokers do not end it
            elif hangs:
                found[f"{place}: a transaction is open at {stable[place]} of {end}"] = False
                continue
            position, target_position = reached.get(p.copy_id, (-1, -1))
            is_whole = copy in self._arrived and target_position >= target_end
            if position >= end and (hangs or is_whole):
                continue
            if self._may_have_stopped(topic, p):
                continue
            seen = self._seen.get(p.copy_id)
            at = position, self._records[copy]
            if seen is None or seen.place != at:
                seen = self._seen[p.copy_id] = _Seen(at, now)
            status = self._lab.status(p)
            told = f"{status.state} {status.reason}" if status else "no status"
            still = now - seen.at
            text = (
                f"{place}: for {still:.0f} s at {position} of {end}, on the target at "
                f"{target_position} of {target_end}, {told}"
            )
            found[text] = still > self._patience_s(topic, p)
        return found

    def _patience_s(self, topic: TopicHistory, p: AssignedPartition) -> float:
        number = p.partition
        stops = (
            number in topic.life.deleted
            or number in topic.life.truncations
            or number in topic.refusals
            or number in topic.target_cuts
            or number in topic.trimmed
        )
        return STILL_S + (RETRY_S if stops else 0.0)

    def _reached(self) -> dict[CopyId, tuple[int, int]]:
        """Return the furthest position of each copy in the source and in the target."""
        reached: dict[CopyId, tuple[int, int]] = {}
        for report in self._lab.reports():
            for entry in report.positions:
                found = entry.position.source_next, entry.position.target_next
                reached[entry.copy_id] = max(found, reached.get(entry.copy_id, found))
        return reached

    def _may_have_stopped(self, topic: TopicHistory, p: AssignedPartition) -> bool:
        """Whether the partition has stopped and its scenario may make it.

        Whether it did is judged by the logs afterwards.
        """
        status = self._lab.status(p)
        if status is None or status.state != "stopped":
            return False
        number = p.partition
        truncated = number in topic.life.truncations
        has_lost = truncated or number in topic.life.deleted
        if self._policy == "stop" and has_lost and status.lost_from is not None:
            return True
        lacks = truncated or number in topic.trimmed
        return lacks and topic.interrupted and is_undecidable(status)


def high_watermarks(bootstrap: str, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the ends of logs, as a consumer that reads uncommitted records finds them."""
    wanted = {KafkaPartition(p.topic, p.partition): OffsetSpec.latest() for p in places}
    # A new client each time: one that is kept remembers the leaders of before a restart.
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    answers = admin.list_offsets(
        wanted, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=10
    )
    return {
        TopicPartition(place.topic, place.partition): answer.result().offset
        for place, answer in answers.items()
    }


def is_undecidable(status: PartitionStatus) -> bool:
    """Whether a partition has stopped because nobody can know where its copy is."""
    return status.state == "stopped" and "undecidable" in status.reason
