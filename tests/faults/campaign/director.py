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
from dataclasses import replace
from functools import partial
from typing import Final

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.faults.campaign import map_damage, truncation
from tests.faults.campaign.brokers import Pair, delete_topics, signal_broker
from tests.faults.campaign.elections import persistently
from tests.faults.campaign.history import TopicHistory
from tests.faults.campaign.plan import Plan
from tests.faults.campaign.proxy import Proxy
from tests.faults.campaign.settings import Step
from tests.faults.campaign.slots import Slots
from tests.faults.campaign.workload import Workload
from tests.integration.copying import CopyLab
from tests.waiting import Stopwatch

from srm.domain.flow_state.replication_records import AssignedPartition
from srm.domain.names.topics import TopicPartition as Partition
from srm.engine.cluster_ports import TopicSpec
from srm_lab.testing.logs import read_log

logger = logging.getLogger(__name__)

STRANGER: Final = b"stranger "
_INTERRUPTING: Final = frozenset(
    {
        *("kill slot", "stop slot", "give away untold", "damage map"),
        *("kill target", "stop target", "shut target", "drop packets"),
    }
)
"""Steps after which what was copied since the last report may be known from the logs alone."""
_TAKEOVER_S: Final = 3.0
_REQUEST_S: Final = 12.0
_FREEZE_S: Final = 40.0
"""Until partitions of a broker that hangs are copied again: elections, and the longest request."""
_USUAL_LIMIT: Final = 1_048_588


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
        self._admin = AdminClient({"bootstrap.servers": pair.source_bootstrap, "log_level": 0})
        self._queue = ThreadPoolExecutor(max_workers=1, thread_name_prefix="campaign-steps")
        self._moved: dict[str, set[AssignedPartition]] = {}
        self._strangers = 0
        self.problems: list[str] = []
        self.at_once: dict[str, Callable[[Step], None]] = {
            "kill slot": lambda step: slots.kill(str(step.slot)),
            "start slot": lambda step: slots.start(str(step.slot)),
            "stop slot": lambda step: slots.signal(str(step.slot), signal.SIGSTOP),
            "kill target": lambda step: pair.target[step.node].kill(),
            "start target": lambda step: pair.target[step.node].start(),
            "stop target": lambda step: signal_broker(pair.target[step.node], signal.SIGSTOP),
            "wake target": lambda step: signal_broker(pair.target[step.node], signal.SIGCONT),
            "kill source": lambda step: pair.source[step.node].kill(),
            "start source": lambda step: pair.source[step.node].start(),
            "stop source": lambda step: signal_broker(pair.source[step.node], signal.SIGSTOP),
            "wake source": lambda step: signal_broker(pair.source[step.node], signal.SIGCONT),
            "drop packets": lambda _: self._with_proxy(Proxy.drop),
            "forward packets": lambda step: self._with_proxy(
                partial(Proxy.forward, hang_up=step.how == "hang up")
            ),
            "pause writers": lambda _: workload.pause(),
            "resume writers": lambda _: workload.go_on(),
        }
        self.in_turn: dict[str, Callable[[Step], None]] = {
            "move away": self._move_away,
            "wake slot": self._wake_slot,
            "give away untold": self._give_away_untold,
            "tell": self._tell,
            "shut target": lambda step: pair.target[step.node].stop(),
            "shut source": lambda step: pair.source[step.node].stop(),
            "expect progress": self._expect_progress,
            "want replicas": self._want_replicas,
            "limit records": self._limit_records,
            "compact target": self._compact_target,
            "truncate target": self._truncate_target,
            "trim target": self._trim_target,
            "flood": self._flood,
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
            if step.do in _INTERRUPTING:
                self._interrupted()
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
        persistently("assign", self._slots.publish)

    def _in_turn(self, step: Step) -> None:
        persistently(step.do, lambda: self.in_turn[step.do](step))
        logger.info("step %s done", step.do)

    # ----- who copies what

    def _interrupted(self) -> None:
        for topic in self._topics:
            topic.interrupted = True

    def _with_proxy(self, work: Callable[[Proxy], None]) -> None:
        if self._pair.proxy is not None:
            work(self._pair.proxy)

    def _expect_progress(self, step: Step) -> None:
        """While one broker hangs, every partition that has anything to copy goes on.

        Those that it led go on elsewhere, and the others are not held up. The broker is woken only
        afterwards.
        """
        node = self._pair.target[step.node]
        if not self._is_alone(step):
            time.sleep(_REQUEST_S)  # what is scripted: the broker hangs for so long
            signal_broker(node, signal.SIGCONT)
            return
        waiting = {place: end for place, end in self._remote_ends().items() if self._is_fed(place)}
        still = dict(waiting)

        def goes_on() -> bool:
            now = self._remote_ends()
            for place, end in waiting.items():
                if now[place] > end:
                    still.pop(place, None)
            return not still

        try:
            _wait(goes_on, _FREEZE_S, "progress")
        except TimeoutError:
            # The last records of some may have come just before the look, their report after it.
            if names := ", ".join(str(place) for place in still if self._is_fed(place)):
                self.problems.append(f"while a broker hangs, nothing comes to {names}")
        finally:
            signal_broker(node, signal.SIGCONT)

    def _is_alone(self, step: Step) -> bool:
        """Whether nothing else of the plan keeps partitions from being copied meanwhile."""
        began = step.at - 1.5
        others = [
            other for other in self._plan.steps if other.node != step.node or other.at < began
        ]
        return not any(
            began - _REQUEST_S < other.at < step.at + _FREEZE_S and other.do in self.at_once
            for other in others
        )

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
        persistently("assign", self._slots.publish)
        self._workload.expand(topic.name, count)

    def _recreate(self, step: Step) -> None:
        topic = self._topics[step.topic]
        with self._workload.silent(topic.name):
            topic.snapshot(self._pair)
            delete_topics(self._pair.source_bootstrap, [topic.name])
            self._lab.source.create_topics([TopicSpec(topic.name, len(topic.partitions), 1, {})])
        self._reassign(topic, same_target=True)

    def _recreate_remote(self, step: Step) -> None:
        topic = self._topics[step.topic]
        delete_topics(self._pair.target_bootstrap, [topic.remote])
        self._lab.remote(topic.name, topic.remote_configs)
        self._reassign(topic, same_target=False)

    def _reassign(self, topic: TopicHistory, *, same_target: bool) -> None:
        old = topic.partitions
        gone = {old[0].topic_id if same_target else old[0].target_topic_id}
        topic.begin_life(list(self._lab.assignable(topic.name, gone)), same_target=same_target)
        self._slots.replace(old, topic.partitions)
        persistently("assign", self._slots.publish)  # alone: there is one new topic, not two

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
            topic.snapshot(self._pair)
            place = TopicPartition(topic.name, number, before)
            [deleted] = self._admin.delete_records([place], request_timeout=10).values()
            deleted.result()
            known = topic.life.deleted.get(number, 0)
            topic.life.deleted[number] = max(known, before)
            logger.info("%s: deleted below %s of %s", source, before, end)
        finally:
            self._slots.signal(holder, signal.SIGCONT)

    def _copied(self, partition: AssignedPartition) -> int:
        found = self._slots.positions().get(partition.copy_id, [])
        return max((entry.position.source_next for _, entry in found), default=0)

    def _remote_ends(self) -> dict[Partition, int]:
        places = [Partition(t.remote, p.partition) for t in self._topics for p in t.partitions]
        return self._lab.target.log_ends(places)

    def _is_fed(self, remote: Partition) -> bool:
        """Whether the source has records that are yet to come to a remote partition."""
        for topic in self._topics:
            for p in topic.partitions:
                if (topic.remote, p.partition) == (remote.topic, remote.partition):
                    return self._copied(p) < self._end(Partition(topic.name, p.partition))
        return False

    def _end(self, partition: Partition) -> int:
        return self._lab.source.log_ends([partition])[partition]

    def _truncate(self, step: Step) -> None:
        topic, number = self._topics[step.topic], step.partition
        [broker, *_] = self._pair.source
        with self._workload.silent(topic.name):
            topic.snapshot(self._pair)
            lowest = topic.life.deleted.get(number, 0)
            copied = self._copied(topic.partitions[number])
            at = truncation.cut(broker, topic.name, number, step.share, lowest)
            if at is not None:  # written down at once: what follows may fail and be tried again
                gone = topic.truncate(number, at, copied)
                logger.info("%s-%s: truncated at %s, %s gone", topic.name, number, at, gone)
            broker.start()
            broker.wait_ready()

    def _truncate_target(self, step: Step) -> None:
        topic, number = self._topics[step.topic], step.partition
        [broker, *others] = self._pair.target
        if others:
            return  # they would give it back
        self._interrupted()
        lowest = topic.trimmed.get(number, 0)
        forgets = step.how == "forgotten"
        at = truncation.cut(
            broker, topic.remote, number, step.share, lowest, forgets_producers=forgets
        )
        if at is not None:
            topic.cut_target(number, at)
            logger.info("%s-%s: truncated at %s", topic.remote, number, at)
        broker.start()
        broker.wait_ready()

    def _trim_target(self, step: Step) -> None:
        topic, number = self._topics[step.topic], step.partition
        bootstrap = self._pair.target_bootstrap
        # Read before and after: between the two looks the copy goes on.
        held = read_log(bootstrap, topic.remote, number)
        if not held:
            return
        first, last = held[0][0], held[-1][0] + 1
        before = first + int(step.share * (last - first))
        place = TopicPartition(topic.remote, number, before)
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        [deleted] = admin.delete_records([place], request_timeout=10).values()
        deleted.result()
        topic.trim_target(number, before, held)
        logger.info("%s-%s: trimmed below %s of %s", topic.remote, number, before, last)

    # ----- what the target takes

    def _limit_records(self, step: Step) -> None:
        topic = self._topics[step.topic]
        if step.node < _USUAL_LIMIT:
            for p in topic.partitions:
                topic.begin_refusals(p.partition, step.node, self._copied(p))
        config = {"max.message.bytes": str(step.node)}
        self._lab.target.alter_topic_configs({topic.remote: config})
        if step.node < _USUAL_LIMIT:
            return
        for number, refusals in topic.refusals.items():
            end = self._end(Partition(topic.name, number))
            refusals[-1] = replace(refusals[-1], end=end)

    def _compact_target(self, step: Step) -> None:
        topic = self._topics[step.topic]
        config = {
            "cleanup.policy": "compact",
            "segment.ms": "500",
            "min.cleanable.dirty.ratio": "0.01",
            "max.compaction.lag.ms": "500",
        }
        topic.remote_configs = {**topic.remote_configs, **config}
        self._lab.target.alter_topic_configs({topic.remote: config})

    def _want_replicas(self, step: Step) -> None:
        topic = self._topics[step.topic]
        self._lab.target.alter_topic_configs(
            {topic.remote: {"min.insync.replicas": str(step.node)}}
        )

    def _flood(self, step: Step) -> None:
        self._workload.flood(self._topics[step.topic].name, step.partition, step.how)

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
            producer.produce(topic.remote, value, key=b"stranger", partition=step.partition)
        producer.flush(10)
        if step.how == "commit":
            producer.commit_transaction(10)
        elif step.how == "abort":
            producer.abort_transaction(10)


def _wait(condition: Callable[[], bool], seconds: float, what: str) -> None:
    watch = Stopwatch()
    while not condition():
        if watch.elapsed_s > seconds:
            raise TimeoutError(what)
        time.sleep(0.1)  # between two looks
