"""One stay of a consumer on one cluster, with its messages and all bookkeeping of offsets.

Offsets are valid only within one stay: the topic of the same name on the other cluster has others.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, TopicPartition

from srm.client.messages import FailoverMessage, named_errors, stamp
from srm.client.threads import Aside
from srm.config.model import Config
from srm.domain.names.topics import Flow
from srm.errors import UsageError
from srm.kafka.wire.errors import Needs, on_group, translate

log = logging.getLogger(__name__)

_SLICE_S: Final = 0.1

# A topic that does not exist yet, or no longer: read once it exists. Copies are created late.
_PASSING: Final = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 -- librdkafka's local codes are named so
}
# Commits with these errors never succeed: the group has assigned our partitions to other members.
_LOST: Final = {
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.FENCED_MEMBER_EPOCH,
    KafkaError.STALE_MEMBER_EPOCH,
    KafkaError.FENCED_INSTANCE_ID,
    KafkaError._ASSIGNMENT_LOST,  # noqa: SLF001
}
_NO_OFFSET: Final = KafkaError._NO_OFFSET  # noqa: SLF001
_STATE: Final = KafkaError._STATE  # noqa: SLF001

_T = TypeVar("_T")

Place = tuple[str, int]
"""Topic and partition number."""


@dataclass(eq=False)
class Membership:
    """A consumer on one cluster, not subscribed yet; ``epoch`` numbers its stays, from 1.

    ``aside``: makes the calls that may block. ``fresh``: partitions that it has got since the last
    :meth:`start_offsets`, None without an assignment since.
    """

    native: Consumer
    cluster: str
    epoch: int
    group: str
    commits: bool
    is_given_up: Callable[[], bool] = lambda: False
    owned: set[Place] = field(default_factory=set)
    fresh: list[TopicPartition] | None = None
    given_up: bool = False
    unsure: dict[str, int] = field(default_factory=dict)
    _pending: deque[FailoverMessage] = field(default_factory=deque)
    _delivered: dict[Place, int] = field(default_factory=dict)
    _processed: dict[Place, int] = field(default_factory=dict)
    _first: dict[Place, int] = field(default_factory=dict)
    _confirmed: dict[Place, int] = field(default_factory=dict)
    _closing: bool = False
    _rebalancing: bool = False

    def __post_init__(self) -> None:
        self._progress = self._processed if self.commits else self._delivered
        self.aside = Aside(f"srm-stay-{self.group}", self.is_given_up)

    # ----- reading

    @property
    def ready(self) -> int:
        """Number of messages that wait to be taken."""
        return len(self._pending)

    def fetch(self, count: int, timeout_s: float) -> None:
        """Wait for up to ``count`` messages, errors included; keep them until taken or revoked."""
        if count == 1:
            message = self.native.poll(timeout_s)
            found = [] if message is None else [message]
        else:
            found = self.native.consume(count, timeout_s)
        self._pending += [stamp(m, self.cluster, self.epoch) for m in found if self._counts(m)]

    def take(self, count: int) -> list[FailoverMessage]:
        """Hand up to ``count`` messages over to the application."""
        taken = [self._pending.popleft() for _ in range(min(count, len(self._pending)))]
        for message in taken:
            if message.error() is None:
                self._first.setdefault(_place(message), message.offset())
                self._delivered[_place(message)] = message.offset() + 1
        return taken

    def has_handed_over(self, offsets: Iterable[TopicPartition]) -> bool:
        """Return whether the application got all records before these offsets in this stay."""
        return all(
            one.offset <= self._delivered.get((one.topic, one.partition), -1)
            for one in offsets
            if one.offset >= 0
        )

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return positions; librdkafka's pass markers, where no record was handed over."""
        found = self.native.position(partitions)
        for one in found:
            if one.offset >= 0:
                one.offset = self._delivered.get((one.topic, one.partition), OFFSET_INVALID)
        return found

    def _counts(self, message: Any) -> bool:
        error = message.error()
        if error is None or error.code() not in _PASSING:
            return True
        log.debug("group %s on %s: %s", self.group, self.cluster, error)
        return False

    # ----- processed messages

    def process(self, messages: Iterable[FailoverMessage]) -> dict[str, int]:
        """Mark messages as processed; return numbers of those only another member can commit."""
        lost: dict[str, int] = {}
        stored: dict[Place, TopicPartition] = {}
        for message in messages:
            place = _place(message)
            if place not in self.owned:
                log.warning(
                    "group %s: %s-%d was revoked while this member processed offset %d",
                    *(self.group, *place, message.offset()),
                )
                lost[_name(place)] = lost.get(_name(place), 0) + 1
            elif message.offset() >= self._processed.get(place, -1):
                stored[place] = offset_after(message)
                self._processed[place] = message.offset() + 1
        if stored:
            self.store(list(stored.values()))
        return lost

    def store(self, offsets: list[TopicPartition]) -> None:
        """Store offsets for the next commit."""
        try:
            self.native.store_offsets(offsets=offsets)
        except KafkaException as error:
            if error.args[0].code() not in {_STATE, *_LOST}:
                raise
            log.warning("group %s: offsets were not stored: %s", self.group, error)
        for one in offsets:
            self._processed[one.topic, one.partition] = one.offset

    def forget(self, places: Sequence[Place]) -> None:
        """Forget the messages of partitions: they are lost, or the application seeks in them."""
        self._pending = deque(m for m in self._pending if _place(m) not in places)
        for known in (self._delivered, self._processed, self._first, self._confirmed):
            for place in places:
                known.pop(place, None)

    # ----- assigned and revoked partitions

    def gain(self, partitions: Sequence[TopicPartition]) -> None:
        """Record assigned partitions."""
        self.owned |= {(one.topic, one.partition) for one in partitions}
        self.fresh = [*(self.fresh or ()), *partitions]
        for one in partitions:
            self.unsure.pop(_name((one.topic, one.partition)), None)  # it is read again here

    def lose(self, partitions: Sequence[TopicPartition]) -> None:
        """Record partitions that other members have or will have."""
        places = [(one.topic, one.partition) for one in partitions]
        self.owned -= set(places)
        self.forget(places)

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions this member has."""
        return [TopicPartition(*place) for place in sorted(self.owned)]

    def start_offsets(self) -> dict[str, int]:
        """Return committed offsets of partitions assigned since the last call (or GivenUpError)."""
        fresh, self.fresh = self.fresh, None
        return {_name(place): offset for place, offset in self._read_commits(fresh or ()).items()}

    def count_uncommitted(self, partitions: Sequence[TopicPartition]) -> dict[str, int]:
        """Count records processed and, by the cluster's offsets, not committed."""
        seen = self._progress
        ours = [one for one in partitions if (one.topic, one.partition) in seen]
        committed = self._read_commits(ours)
        return {
            _name(place): seen[place] - offset
            for place, offset in committed.items()
            if offset < seen[place]
        }

    def count_unconfirmed(self, partitions: Sequence[TopicPartition]) -> dict[str, int]:
        """Count records processed and, as far as this member knows, not committed."""
        counts: dict[str, int] = {}
        for one in partitions:
            place = (one.topic, one.partition)
            start = self._confirmed.get(place, self._first.get(place, 0))
            if place in self._progress and start < self._progress[place]:
                counts[_name(place)] = self._progress[place] - start
        return counts

    def lose_unsure(self, partitions: Sequence[TopicPartition]) -> None:
        """Record lost partitions whose last commit is unknown."""
        self.unsure |= self.count_unconfirmed(partitions)
        self.lose(partitions)

    def confirm(self, offsets: Iterable[TopicPartition]) -> None:
        """Record offsets the group has committed."""
        for one in offsets:
            if one.error is None and one.offset >= 0:
                self._confirmed[one.topic, one.partition] = one.offset

    def read_commits(self) -> None:
        """Read what the group has committed: librdkafka answers no such query while it closes."""
        committed = self._read_commits(self.assignment)
        self.confirm(TopicPartition(*place, offset) for place, offset in committed.items())

    def _read_commits(self, partitions: Sequence[TopicPartition]) -> dict[Place, int]:
        if not partitions:
            return {}
        wanted = [TopicPartition(one.topic, one.partition) for one in partitions]
        try:
            found = self.run(lambda: self.native.committed(wanted, timeout=5.0))
        except KafkaException as error:
            log.warning("group %s: committed offsets are not known: %s", self.group, error)
            return {}
        return {(one.topic, one.partition): one.offset for one in found if one.offset >= 0}

    # ----- committing and leaving

    def commit_processed(self) -> bool:
        """Commit what is processed, in spite of rebalances; False: removed from the group."""
        deadline = time.monotonic() + 30.0
        while True:
            try:
                self.commit_once()
            except KafkaException as error:
                failure = error.args[0]
                if failure.code() in _LOST:
                    log.warning(
                        "group %s: this member was removed from its group, the records it "
                        "processed last are read again: %s",
                        *(self.group, failure),
                    )
                    return False
                rebalances = failure.code() == KafkaError.REBALANCE_IN_PROGRESS
                passing = failure.retriable() or rebalances
                if not passing or time.monotonic() > deadline:
                    with named_errors(self.label("committing"), self.needs):
                        raise
                # Polling lets the rebalance continue; a message it returns is delivered later.
                message = self.native.poll(_SLICE_S)
                if message is not None and self._counts(message):
                    self._pending.append(stamp(message, self.cluster, self.epoch))
            else:
                return True

    def commit_once(self) -> None:
        """Commit what is stored, once."""
        try:
            results = self.commit()
        except KafkaException as error:
            if error.args[0].code() == _NO_OFFSET:  # nothing to commit
                return
            raise
        for result in results:
            if result.error is not None:
                raise KafkaException(result.error)

    def commit(self, offsets: list[TopicPartition] | None = None) -> list[TopicPartition]:
        """Commit these offsets, or what is stored, and wait for it; return each result.

        Offsets of an automatic or asynchronous commit without an answer are committed again, to be
        confirmed. GivenUpError: the cluster is abandoned; whether it was committed is unknown.
        """
        try:
            results = self._commit(offsets)
        except KafkaException as error:
            under_way = [] if offsets is not None else self._under_way
            if error.args[0].code() != _NO_OFFSET or not under_way:
                raise
            results = self._commit(under_way)
        self.confirm(results)
        return results

    def _commit(self, offsets: list[TopicPartition] | None) -> list[TopicPartition]:
        which = {} if offsets is None else {"offsets": offsets}
        return self.run(lambda: self.native.commit(asynchronous=False, **which)) or []

    @property
    def _under_way(self) -> list[TopicPartition]:
        return [
            TopicPartition(*place, offset)
            for place, offset in self._processed.items()
            if place in self.owned and self._confirmed.get(place) != offset
        ]

    def close(self) -> None:
        """Leave the group, in the caller's thread; rebalance callbacks run within it."""
        self._closing = True
        self.native.close()
        self.aside.leave()

    def run(self, call: Callable[[], _T]) -> _T:
        """Make a call that may block; GivenUpError: the cluster is abandoned."""
        # confluent-kafka refuses calls of other threads while it closes a consumer. librdkafka
        # answers no other thread while a rebalance callback runs.
        return call() if self._closing or self._rebalancing else self.aside.call(call)

    @contextmanager
    def rebalancing(self) -> Iterator[None]:
        """Make all calls in this thread during a rebalance callback."""
        self._rebalancing = True
        try:
            yield
        finally:
            self._rebalancing = False

    def abandon(self) -> None:
        """Leave an abandoned cluster without waiting; commit there if it still answers."""
        self._pending.clear()
        commit = (lambda: self.native.commit(asynchronous=False),) if self.commits else ()
        self.aside.leave(*commit, self.native.close)

    def label(self, doing: str) -> str:
        """Describe an action with its group and cluster, for messages."""
        return f"{doing} as group {self.group!r} on cluster {self.cluster}"

    @property
    def needs(self) -> Needs:
        """The right that all these calls need."""
        return on_group("Read", self.group)

    def warn(self, doing: str, error: KafkaException) -> None:
        """Log a failure that does not stop the consumer."""
        log.warning("%s", translate(error, self.label(doing), self.needs))


def offset_after(message: Any) -> TopicPartition:
    """Return the offset to commit for a processed message."""
    # The source's leader epoch would make consumers of a copy refresh their metadata forever, but
    # here it is committed to the cluster it was read from.
    epoch = message.leader_epoch()
    place = (message.topic(), message.partition(), message.offset() + 1)
    return TopicPartition(*place) if epoch is None else TopicPartition(*place, leader_epoch=epoch)


def subscription(config: Config, cluster: str, topics: Iterable[str]) -> list[str]:
    """Return the names of topics and of their copies on a cluster; ``^`` begins a pattern."""
    names = list(topics)
    for other in config.clusters:
        if other != cluster:
            name_of = config.flow(Flow(other, cluster)).names.remote
            names += [remote_name(topic, name_of) for topic in topics]
    return list(dict.fromkeys(names))


def remote_name(topic: str, name_of: Callable[[str], str]) -> str:
    """Return the name or pattern of copies that a replication policy names."""
    if not topic.startswith("^"):
        return name_of(topic)
    before, found, after = (
        part.replace(".", "\\.") for part in name_of("TOPIC").partition("TOPIC")
    )
    if not found:
        raise UsageError(
            f"the pattern {topic} cannot select copies, as the replication policy does not keep "
            "the name of a topic in that of its copy",
            "subscribe to names",
        )
    if not before + after:
        return topic
    # librdkafka's patterns are POSIX's: the alternatives are grouped after the prefix.
    return f"^{before}({topic[1:].replace('|^', '|')}){after and after + '$'}"


def _place(message: Any) -> Place:
    return message.topic(), message.partition()


def _name(place: Place) -> str:
    return f"{place[0]}-{place[1]}"
