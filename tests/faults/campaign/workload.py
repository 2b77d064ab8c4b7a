"""The writers of a plan, whose records differ from each other, are all equal, or come again.

What they wrote is not remembered, except for compacted topics: the checker reads it from the
source, before a fault destroys it and at the end.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from random import Random
from typing import Final

from confluent_kafka import Message, Producer
from tests.faults.campaign.plan import Plan
from tests.faults.campaign.settings import TopicPlan, WriterPlan

from srm.errors import UnavailableError
from srm_lab.testing.logs import LoggedRecord

logger = logging.getLogger(__name__)

LAST: Final = b"the last record"
SKIPPED: Final = "skipped"
"""A header whose records are left out, where the flow filters."""
_FLUSH_S: Final = 30.0
_PATTERNS: Final = 5
_ONE_TIME_MS: Final = int(time.time() - 3600) * 1000  # recent: brokers delete what is older
_FLOODS: Final = {"large": (3500, 20_000), "small": (60_000, 40)}
"""Records and bytes of each: 70 MB of large ones; or many small ones."""
_TRANSACTION_S: Final = 20.0
_MOST_RECORDS: Final = 8000
"""Of one writer: on a busy machine faults take longer, and there is enough to check."""


class Writer(threading.Thread):
    """Plays one writer plan until stopped; a broken producer is replaced."""

    def __init__(
        self,
        name: str,
        seed: int,
        bootstrap: str,
        topic: str,
        plan: TopicPlan,
        writer: WriterPlan,
        records: str = "",
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.topic = topic
        self.partitions = plan.partitions
        self.exclusive = threading.RLock()
        self.sent: dict[tuple[int, int], LoggedRecord] = {}
        self._chance = Random(f"{seed}-{name}")
        self._servers = bootstrap
        self._plan = writer
        self._keys = 30 if plan.keyed else 1000
        self._compacted = plan.compacted
        self._keyed = plan.keyed
        self._skips = records == "filter"
        self._patterns = [self._chance.randbytes(self._size()) for _ in range(_PATTERNS)]
        self._number = 0
        self._producers = 0
        self._over = threading.Event()
        self._going = threading.Event()
        self._going.set()
        self._producer: Producer | None = None

    def run(self) -> None:
        while not self._over.is_set():
            self._going.wait()
            if self._number >= _MOST_RECORDS:
                self._over.wait()
                break
            with self.exclusive:
                try:
                    self._burst(self._ready())
                # A producer whose broker is killed can end in all sorts of ways, SystemError too.
                except Exception as error:  # noqa: BLE001 - the checker reads what was written
                    logger.info("writer %s begins anew: %s", self.name, error)
                    self._producer = None
            self._over.wait(self._plan.pause_ms / 1000)
        with suppress(Exception):
            self.flush()

    def pause(self) -> None:
        self._going.clear()

    def go_on(self) -> None:
        self._going.set()

    def end(self) -> None:
        """Ask for the end; join to wait for it."""
        self._over.set()
        self._going.set()

    def flush(self) -> None:
        """Wait for what is on its way; only while holding ``exclusive``."""
        if self._producer is not None:
            self._producer.flush(_FLUSH_S)

    def renew(self) -> None:
        """Use another producer from now on; only while holding ``exclusive``."""
        self._producer = None

    def _ready(self) -> Producer:
        if self._producer is None:
            settings: dict[str, object] = {
                "bootstrap.servers": self._servers,
                "compression.type": self._plan.codec,
                "linger.ms": self._plan.linger_ms,
                "enable.idempotence": True,
                "message.timeout.ms": 60_000,
                "log_level": 0,
            }
            if self._plan.kind != "plain":
                self._producers += 1
                settings |= {
                    "transactional.id": f"{self.topic}-{self.name}-{self._producers}",
                    "transaction.timeout.ms": 4000,
                    "message.timeout.ms": 4000,
                }
            producer = Producer(settings)
            if self._plan.kind != "plain":
                producer.init_transactions(_TRANSACTION_S)
            self._producer = producer
        return self._producer

    def _burst(self, producer: Producer) -> None:
        plan = self._plan
        if plan.kind != "plain":
            producer.begin_transaction()
        for _ in range(plan.burst):
            self._produce(producer)
        producer.poll(0)
        if plan.kind == "plain":
            return
        producer.flush(_TRANSACTION_S)
        outcome = "abort" if self._chance.random() < plan.abort_share else "commit"
        if plan.kind == "hanging":
            self._over.wait(plan.hold_ms / 1000)
            outcome = plan.outcome
        if outcome == "timeout":
            self._producer = None  # the broker aborts it in its own time
        elif outcome == "abort":
            producer.abort_transaction(_TRANSACTION_S)
        else:
            producer.commit_transaction(_TRANSACTION_S)

    def _produce(self, producer: Producer) -> None:
        record = self._unique() if self._plan.content == "unique" else self._again()
        self._number += 1
        partition = self._chance.randrange(self.partitions)
        producer.produce(
            self.topic,
            record.value,
            key=record.key,
            partition=partition,
            headers=list(record.headers) or None,
            on_delivery=partial(self._delivered, record) if self._compacted else None,
            timestamp=record.timestamp[1],
        )

    def _unique(self) -> LoggedRecord:
        chance = self._chance
        name = f"{self.name}:{self._number}".encode()
        tombstone = chance.random() < 0.05
        value = None if tombstone else name + b" " + chance.randbytes(self._size())
        key: bytes | None = str(chance.randrange(self._keys)).encode()
        if not self._keyed and chance.random() < 0.2:
            key = None
        headers: list[tuple[str, bytes | None]] = []
        if tombstone or self._compacted or chance.random() < 0.3:
            headers = [("id", name), ("empty", b""), ("null", None)][: chance.randint(1, 3)]
        if self._skips and chance.random() < 0.1:
            headers.append((SKIPPED, b""))
        at = int(time.time() * 1000) - chance.randrange(60_000)
        return LoggedRecord(key, value, tuple(headers), (1, at))

    def _again(self) -> LoggedRecord:
        """Return a record that is equal, in all that is copied, to others before and after it."""
        which = 0
        if self._plan.content == "repeating":
            which = self._number % _PATTERNS
        key = b"%d" % which if self._keyed or which % 2 else None
        return LoggedRecord(key, self._patterns[which], (), (1, _ONE_TIME_MS + which))

    def _size(self) -> int:
        largest = self._plan.largest
        return self._chance.randrange(largest + 1) if self._chance.random() < 0.2 else largest // 4

    def _delivered(self, record: LoggedRecord, error: object, message: Message) -> None:
        if error is None:
            self.sent[message.partition(), message.offset()] = record


class Workload:
    """All writers of a plan."""

    def __init__(self, plan: Plan, bootstrap: str, names: list[str]) -> None:
        self._bootstrap = bootstrap
        self._writers = [
            Writer(f"w{t}.{w}", plan.seed, bootstrap, names[t], topic, writer, plan.records)
            for t, topic in enumerate(plan.topics)
            for w, writer in enumerate(topic.writers)
        ]

    def start(self) -> None:
        for writer in self._writers:
            writer.start()

    def end(self) -> None:
        """End all writers and wait until what they sent is acknowledged."""
        for writer in self._writers:
            writer.end()
        for writer in self._writers:
            writer.join(300)
            if writer.is_alive():
                raise TimeoutError(f"writer {writer.name} does not end")

    def pause(self) -> None:
        for writer in self._writers:
            writer.pause()

    def go_on(self) -> None:
        for writer in self._writers:
            writer.go_on()

    def expand(self, topic: str, partitions: int) -> None:
        """Write into new partitions too."""
        for writer in self._of(topic):
            writer.partitions = partitions

    @contextmanager
    def silent(self, topic: str) -> Iterator[None]:
        """Nobody writes into the topic, nothing is on its way; new producers afterwards."""
        writers = self._of(topic)
        with ExitStack() as locks:
            for writer in writers:
                locks.enter_context(writer.exclusive)
                writer.flush()
            yield
            for writer in writers:
                writer.renew()

    def sent(self, topic: str, partition: int) -> dict[int, LoggedRecord]:
        """Return the acknowledged records by offset, of a compacted topic."""
        return {
            offset: record
            for writer in self._of(topic)
            for (number, offset), record in writer.sent.items()
            if number == partition
        }

    def flood(self, topic: str, partition: int, how: str) -> None:
        """Write more at once than queues, or the look-ahead of a walk, hold."""
        count, size = _FLOODS[how]
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "linger.ms": 20,
                "enable.idempotence": True,
                "queue.buffering.max.kbytes": 1 << 18,
                "queue.buffering.max.messages": 1_000_000,
                "log_level": 0,
            }
        )
        value = b"flood".ljust(size, b".")
        for number in range(count):
            key = b"flood %d" % (number % 7)
            producer.produce(topic, value, key=key, partition=partition, timestamp=_ONE_TIME_MS)
        if producer.flush(_FLUSH_S):
            logger.info("a flood of %s was cut short", topic)

    def write_last(self, places: Iterable[tuple[str, int]], bootstrap: str) -> None:
        """Write the last record of each partition, by which its copy is known to be complete.

        Raises:
            UnavailableError: the source does not take them.
        """
        producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0}
        )
        for topic, number in places:
            producer.produce(topic, LAST, key=LAST, partition=number)
        if producer.flush(6 * _FLUSH_S):
            raise UnavailableError("the source does not take the last records")

    def _of(self, topic: str) -> list[Writer]:
        return [writer for writer in self._writers if writer.topic == topic]
