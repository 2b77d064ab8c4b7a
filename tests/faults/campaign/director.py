"""Plays the steps of a plan. Signals are sent at once; what needs a cluster waits its turn.

Steps that talk to a cluster run one after another in a thread of their own, and are tried again
while the cluster is down: the step that starts it again must not wait behind them.
"""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Final

from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.faults.campaign import map_damage, truncation
from tests.faults.campaign.brokers import Pair, delete_topics, signal_broker
from tests.faults.campaign.history import TopicHistory
from tests.faults.campaign.plan import Plan, Step
from tests.faults.campaign.slots import Slots
from tests.faults.campaign.workload import Workload
from tests.integration.copying import CopyLab

from srm.domain.replication_records import AssignedPartition
from srm.domain.topics import TopicPartition as Partition
from srm.engine.ports import TopicSpec
from srm.errors import SrmError

logger = logging.getLogger(__name__)

STRANGER: Final = b"stranger "
_PATIENCE_S: Final = 120.0  # a broker on a busy machine starts in a minute
_TAKEOVER_S: Final = 3.0


class Director:
    """Everything that one seed moves."""

    def __init__(
        self,
        plan: Plan,
        pair: Pair,
        lab: CopyLab,
        topics: list[TopicHistory],
        slots: Slots,
        workload: Workload,
    ) -> None:
        self._plan = plan
        self._pair = pair
        self._lab = lab
        self._topics = topics
        self._slots = slots
        self._workload = workload
        self._admin = AdminClient({"bootstrap.servers": pair.source.bootstrap, "log_level": 0})
        self._queue = ThreadPoolExecutor(max_workers=1, thread_name_prefix="campaign-steps")
        self._moved: dict[str, set[AssignedPartition]] = {}
        self._strangers = 0
        self.at_once: dict[str, Callable[[Step], None]] = {
            "kill slot": lambda step: slots.kill(str(step.slot)),
            "start slot": lambda step: slots.start(str(step.slot)),
            "stop slot": lambda step: slots.signal(str(step.slot), signal.SIGSTOP),
            "kill target": lambda step: pair.target[step.node].kill(),
            "start target": lambda step: pair.target[step.node].start(),
            "stop target": lambda step: signal_broker(pair.target[step.node], signal.SIGSTOP),
            "wake target": lambda step: signal_broker(pair.target[step.node], signal.SIGCONT),
            "kill source": lambda _: pair.source.kill(),
            "start source": lambda _: pair.source.start(),
            "pause writers": lambda _: workload.pause(),
            "resume writers": lambda _: workload.go_on(),
        }
        self.in_turn: dict[str, Callable[[Step], None]] = {
            "move away": self._move_away,
            "wake slot": self._wake_slot,
            "give away untold": self._give_away_untold,
            "tell": self._tell,
            "shut target": lambda step: pair.target[step.node].stop(),
            "expand": self._expand,
            "recreate": self._recreate,
            "recreate remote": self._recreate_remote,
            "delete records": self._delete_records,
            "truncate": self._truncate,
            "damage map": self._damage_map,
            "write into remote": self._write_into_remote,
            "recompress": self._recompress,
        }

    def play(self) -> None:
        """Play all steps in time; returns when every one is done.

        Raises:
            SrmError: a step could not be played: the campaign is at fault, or the clusters.
        """
        began = time.monotonic()
        waiting: list[Future[None]] = []
        for step in self._plan.steps:
            time.sleep(max(0.0, began + step.at - time.monotonic()))
            logger.info("step %s", step)
            if step.do in self.at_once:
                self.at_once[step.do](step)
            else:
                waiting.append(self._queue.submit(self._in_turn, step))
        time.sleep(max(0.0, began + self._plan.seconds - time.monotonic()))
        self._pair.heal()
        for done in waiting:
            done.result()
        self._queue.shutdown()
        self._pair.heal()
        self._slots.wake_all()
        self._workload.go_on()
        for name in self._slots.names:
            self._slots.tell(name)
            self._slots.start(name)
        _persistently("assign", self._slots.publish)

    def _in_turn(self, step: Step) -> None:
        _persistently(step.do, lambda: self.in_turn[step.do](step))
        logger.info("step %s done", step.do)

    # ----- who copies what

    def _move_away(self, step: Step) -> None:
        moved = self._slots.heirs(str(step.slot))
        self._moved[str(step.slot)] = moved
        self._slots.publish()

    def _wake_slot(self, step: Step) -> None:
        name = str(step.slot)
        moved = self._moved.get(name, set())
        if step.how == "after takeover" and moved:
            with suppress(TimeoutError):
                _wait(lambda: self._taken_over(name, moved), _TAKEOVER_S, "takeover")
        self._slots.signal(name, signal.SIGCONT)

    def _taken_over(self, name: str, moved: set[AssignedPartition]) -> bool:
        """Whether another slot has a claim on something that was moved away from this one."""
        positions = self._slots.positions()
        return any(
            slot != name and entry.producer_id >= 0
            for partition in moved
            for slot, entry in positions.get(partition.copy_id, [])
        )

    def _give_away_untold(self, step: Step) -> None:
        self._slots.keep_untold(str(step.slot))
        self._move_away(step)

    def _tell(self, step: Step) -> None:
        self._slots.tell(str(step.slot))
        self._slots.publish()

    # ----- topics

    def _expand(self, step: Step) -> None:
        topic = self._topics[step.topic]
        count = len(topic.partitions) + 1
        self._lab.source.create_partitions({topic.name: count})
        self._lab.target.create_partitions({topic.remote: count})
        last = topic.partitions[0]
        new = AssignedPartition(
            topic.name, count - 1, last.topic_id, topic.remote, last.target_topic_id
        )
        topic.partitions.append(new)
        self._slots.spread([new])
        _persistently("assign", self._slots.publish)
        self._workload.expand(topic.name, count)

    def _recreate(self, step: Step) -> None:
        topic = self._topics[step.topic]
        with self._workload.silent(topic.name):
            topic.snapshot(self._pair.source.bootstrap)
            delete_topics(self._pair.source.bootstrap, [topic.name])
            self._lab.source.create_topics([TopicSpec(topic.name, len(topic.partitions), 1, {})])
        self._reassign(topic, same_target=True)

    def _recreate_remote(self, step: Step) -> None:
        topic = self._topics[step.topic]
        delete_topics(self._pair.target_bootstrap, [topic.remote])
        self._lab.remote(topic.name, topic.remote_configs)
        self._reassign(topic, same_target=False)

    def _reassign(self, topic: TopicHistory, *, same_target: bool) -> None:
        old = topic.partitions
        topic.begin_life(list(self._lab.assignable(topic.name)), same_target=same_target)
        self._slots.replace(old, topic.partitions)
        _persistently("assign", self._slots.publish)  # alone: there is one new topic, not two

    def _recompress(self, step: Step) -> None:
        topic = self._topics[step.topic]
        self._lab.target.alter_topic_configs({topic.remote: {"compression.type": step.how}})

    # ----- loss

    def _delete_records(self, step: Step) -> None:
        """Delete ahead of the copy: its owner sleeps while records come and go."""
        topic, number = self._topics[step.topic], step.partition
        holder = self._slots.holder(topic.partitions[number])
        self._slots.signal(holder, signal.SIGSTOP)
        try:
            source = Partition(topic.name, number)
            copied = self._copied(topic.partitions[number])
            with suppress(TimeoutError):
                _wait(lambda: self._end(source) > copied + 50, 3, "more records")
            end = self._end(source)
            before = copied + int(step.share * (end - copied))
            topic.snapshot(self._pair.source.bootstrap)
            place = TopicPartition(topic.name, number, before)
            [deleted] = self._admin.delete_records([place], request_timeout=10).values()
            deleted.result()
            topic.life.deleted[number] = before
            logger.info("%s: deleted below %s of %s", source, before, end)
        finally:
            self._slots.signal(holder, signal.SIGCONT)

    def _copied(self, partition: AssignedPartition) -> int:
        found = self._slots.positions().get(partition.copy_id, [])
        return max((entry.position.source_next for _, entry in found), default=0)

    def _end(self, partition: Partition) -> int:
        return self._lab.source.log_ends([partition])[partition]

    def _truncate(self, step: Step) -> None:
        topic, number = self._topics[step.topic], step.partition
        if number in topic.life.truncated:
            return  # once is what the checker can follow
        with self._workload.silent(topic.name):
            topic.snapshot(self._pair.source.bootstrap)
            lowest = topic.life.deleted.get(number, 0)
            at = truncation.cut(self._pair.source, topic.name, number, step.share, lowest)
            if at is not None:  # written down at once: what follows may fail and be tried again
                self._note_truncation(topic, number, at)
            self._pair.source.start()
            self._pair.source.wait_ready()

    def _note_truncation(self, topic: TopicHistory, number: int, at: int) -> None:
        records = topic.life.records.get(number, {})
        lost = {offset: record for offset, record in records.items() if offset >= at}
        for offset in lost:
            del records[offset]
        if lost:
            topic.life.truncated[number] = (at, lost)
        logger.info("%s-%s: truncated at %s, %s records gone", topic.name, number, at, len(lost))

    # ----- the map and the remote topics

    def _damage_map(self, step: Step) -> None:
        for name in self._slots.names:
            self._slots.kill(name)
        try:
            map_damage.do(step.how, self._lab)
        finally:
            for name in self._slots.names:
                self._slots.kill(name)  # another step may have started it, before the damage
                self._slots.start(name)

    def _write_into_remote(self, step: Step) -> None:
        topic = self._topics[step.topic]
        settings: dict[str, object] = {
            "bootstrap.servers": self._pair.target_bootstrap,
            "log_level": 0,
            "enable.idempotence": True,
        }
        if step.how != "plain":
            settings["transactional.id"] = f"stranger-{topic.remote}"
        producer = Producer(settings)
        if step.how != "plain":
            producer.init_transactions(10)
            producer.begin_transaction()
        for _ in range(int(step.share * 100)):
            self._strangers += 1
            value = STRANGER + str(self._strangers).encode()
            producer.produce(topic.remote, value, partition=step.partition)
        producer.flush(10)
        if step.how == "commit":
            producer.commit_transaction(10)
        elif step.how == "abort":
            producer.abort_transaction(10)


def _persistently(what: str, work: Callable[[], None]) -> None:
    """Try again while a cluster is down."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            work()
        except (SrmError, KafkaException) as error:
            if time.monotonic() > deadline:
                raise
            logger.info("%s is tried again: %s", what, error)
            time.sleep(0.3)  # between two attempts
        else:
            return


def _wait(condition: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.1)  # between two looks
