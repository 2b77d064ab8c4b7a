"""One stay of a consumer on one cluster: from opening to leaving, with what was read meanwhile.

Offsets mean something only within one stay: the topic of the same name on the other cluster has
other offsets. So all bookkeeping of offsets is here, and goes with it.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from srm.client.background_calls import Aside
from srm.client.errors import named_errors
from srm.client.routing.messages import FailoverMessage, stamp
from srm.kafka.admin.errors import translate
from srm.kafka.admin.rights import Needs, on_group

log = logging.getLogger(__name__)

_SLICE_S: Final = 0.1
_COMMIT_DEADLINE_S: Final = 30.0
_COMMITTED_TIMEOUT_S: Final = 5.0

# A topic that does not exist yet, or no more: read when it comes. Copies come into being late.
_PASSING: Final = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 -- librdkafka's local codes are named so
}
# Commits that fail so will never succeed: the group has given our partitions to somebody else.
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


class Membership:
    """A consumer on one cluster.

    Args:
        native: confluent-kafka's consumer, not subscribed yet.
        cluster: alias of the cluster.
        epoch: number of this stay, from 1.
        group: consumer group, for messages.
        commits: whether what is processed is committed without being asked.
        is_given_up: whether the cluster is given up: what asks it is not waited for any more.
    """

    def __init__(
        self,
        native: Consumer,
        cluster: str,
        epoch: int,
        group: str,
        *,
        commits: bool,
        is_given_up: Callable[[], bool] = lambda: False,
    ) -> None:
        self.native = native
        self.cluster = cluster
        self.epoch = epoch
        self.group = group
        self.owned: set[Place] = set()
        self.fresh: list[TopicPartition] = []
        self.given_up = False
        self.unsure: dict[str, int] = {}
        self._commits = commits
        self._pending: deque[FailoverMessage] = deque()
        self._delivered: dict[Place, int] = {}
        self._processed: dict[Place, int] = {}
        self._first: dict[Place, int] = {}
        self._confirmed: dict[Place, int] = {}
        self._closing = False
        self._rebalancing = False
        self._aside = Aside(f"srm-stay-{group}", is_given_up)

    # ----- reading

    @property
    def ready(self) -> int:
        """How many messages wait to be taken."""
        return len(self._pending)

    def fetch(self, count: int, timeout_s: float) -> None:
        """Wait for up to ``count`` messages, errors among them.

        They stay here until they are taken, so that those of a partition that is lost meanwhile
        are dropped: whoever has it next reads them.
        """
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
        """Whether the application has got, in this stay, all that these offsets say it has."""
        return all(
            one.offset <= self._delivered.get((one.topic, one.partition), -1)
            for one in offsets
            if one.offset >= 0
        )

    def _counts(self, message: Any) -> bool:
        error = message.error()
        if error is None:
            return True
        if error.code() in _PASSING:
            log.debug("group %s on %s: %s", self.group, self.cluster, error)
            return False
        return True

    # ----- what is processed

    def process(self, messages: Iterable[FailoverMessage]) -> dict[str, int]:
        """Count messages, and all before each in its partition, as processed.

        Returns:
            What cannot be committed because another member has the partition now: records by
            topic-partition.
        """
        lost: dict[str, int] = {}
        stored: dict[Place, TopicPartition] = {}
        for message in messages:
            place = _place(message)
            if place not in self.owned:
                log.warning(
                    "group %s: %s-%d was taken from this member while it worked on offset %d",
                    self.group,
                    *place,
                    message.offset(),
                )
                lost[_name(place)] = lost.get(_name(place), 0) + 1
            elif message.offset() >= self._processed.get(place, -1):
                stored[place] = offset_after(message)
                self._processed[place] = message.offset() + 1
        if stored:
            self.store(list(stored.values()))
        return lost

    def store(self, offsets: list[TopicPartition]) -> None:
        """Store offsets for the next commit.

        Raises:
            KafkaException: they cannot be stored.
        """
        try:
            self.native.store_offsets(offsets=offsets)
        except KafkaException as error:
            if error.args[0].code() not in {_STATE, *_LOST}:
                raise
            log.warning("group %s: offsets were not stored: %s", self.group, error)
        for one in offsets:
            self._processed[one.topic, one.partition] = one.offset

    def rewind(self, place: Place) -> None:
        """Forget what was read of a partition: the application seeks in it."""
        self._drop([place])
        self._forget(place)

    # ----- partitions come and go

    def gain(self, partitions: Sequence[TopicPartition]) -> None:
        """Take note of partitions that were assigned."""
        self.owned |= {(one.topic, one.partition) for one in partitions}
        self.fresh += partitions
        for one in partitions:
            self.unsure.pop(_name((one.topic, one.partition)), None)  # it is read again here

    def lose(self, partitions: Sequence[TopicPartition]) -> None:
        """Take note of partitions that others have, or will have."""
        places = [(one.topic, one.partition) for one in partitions]
        self.owned -= set(places)
        self._drop(places)
        for place in places:
            self._forget(place)

    def _forget(self, place: Place) -> None:
        for known in (self._delivered, self._processed, self._first, self._confirmed):
            known.pop(place, None)

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions this member has."""
        return [TopicPartition(*place) for place in sorted(self.owned)]

    def start_offsets(self) -> dict[str, int]:
        """Return the committed offsets of partitions assigned since the last call.

        Raises:
            GivenUpError: the cluster is given up.
        """
        fresh, self.fresh = self.fresh, []
        return {_name(place): offset for place, offset in self._read_commits(fresh).items()}

    def count_uncommitted(self, partitions: Sequence[TopicPartition]) -> dict[str, int]:
        """Count what was processed and is not committed, as far as the cluster says.

        Raises:
            GivenUpError: the cluster is given up.
        """
        seen = self._progress
        ours = [one for one in partitions if (one.topic, one.partition) in seen]
        committed = self._read_commits(ours)
        return {
            _name(place): seen[place] - offset
            for place, offset in committed.items()
            if offset < seen[place]
        }

    def count_unconfirmed(self, partitions: Sequence[TopicPartition]) -> dict[str, int]:
        """Count what was processed and is not known to be committed, without asking the cluster.

        A commit that nobody has heard of yet counts as none: at most one interval of them.
        """
        counts: dict[str, int] = {}
        for one in partitions:
            place = (one.topic, one.partition)
            start = self._confirmed.get(place, self._first.get(place, 0))
            if place in self._progress and start < self._progress[place]:
                counts[_name(place)] = self._progress[place] - start
        return counts

    def lose_unsure(self, partitions: Sequence[TopicPartition]) -> None:
        """Take note of partitions of which it is not known what was committed last."""
        self.unsure |= self.count_unconfirmed(partitions)
        self.lose(partitions)

    def confirm(self, offsets: Iterable[TopicPartition]) -> None:
        """Take note of what the group has committed."""
        for one in offsets:
            if one.error is None and one.offset >= 0:
                self._confirmed[one.topic, one.partition] = one.offset

    @property
    def _progress(self) -> dict[Place, int]:
        return self._processed if self._commits else self._delivered

    def _read_commits(self, partitions: Sequence[TopicPartition]) -> dict[Place, int]:
        if not partitions:
            return {}
        asked = [TopicPartition(one.topic, one.partition) for one in partitions]
        try:
            found = self._ask(lambda: self.native.committed(asked, timeout=_COMMITTED_TIMEOUT_S))
        except KafkaException as error:
            log.warning("group %s: committed offsets are not known: %s", self.group, error)
            return {}
        return {(one.topic, one.partition): one.offset for one in found if one.offset >= 0}

    def _drop(self, places: Sequence[Place]) -> None:
        self._pending = deque(m for m in self._pending if _place(m) not in places)

    # ----- committing and leaving

    def commit_processed(self) -> bool:
        """Commit what is processed and wait for it; return whether the group took it.

        A rebalance that is under way is waited for.

        Raises:
            GivenUpError: the cluster is given up.
            KafkaException: the commit failed.
        """
        deadline = time.monotonic() + _COMMIT_DEADLINE_S
        while True:
            try:
                self.commit_once()
            except KafkaException as error:
                failure = error.args[0]
                if failure.code() in _LOST:
                    log.warning(
                        "group %s: this member was out of its group, what it processed last is "
                        "read again: %s",
                        self.group,
                        failure,
                    )
                    return False
                passing = failure.retriable() or (
                    failure.code() == KafkaError.REBALANCE_IN_PROGRESS
                )
                if not passing or time.monotonic() > deadline:
                    with named_errors(self.where("committing"), self.needs):
                        raise
                # Polling lets the rebalance continue; what comes meanwhile is delivered later.
                message = self.native.poll(_SLICE_S)
                if message is not None and self._counts(message):
                    self._pending.append(stamp(message, self.cluster, self.epoch))
            else:
                return True

    def commit_once(self) -> None:
        """Commit what is stored, once.

        Raises:
            GivenUpError: the cluster is given up.
            KafkaException: the commit failed.
        """
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
        """Commit these offsets, or what is stored, and wait for it; return how each went.

        What an automatic or asynchronous commit has taken along, and nobody has heard of since, is
        committed again: otherwise it would not be known to be committed.

        Raises:
            GivenUpError: the cluster is given up; whether it was committed is not known.
            KafkaException: the commit failed.
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
        return self._ask(lambda: self.native.commit(asynchronous=False, **which)) or []

    @property
    def _under_way(self) -> list[TopicPartition]:
        return [
            TopicPartition(*place, offset)
            for place, offset in self._processed.items()
            if place in self.owned and self._confirmed.get(place) != offset
        ]

    def close(self) -> None:
        """Leave the group, in the caller's thread; rebalance callbacks run within."""
        self._closing = True
        self.native.close()
        self._aside.leave()

    def _ask(self, call: Callable[[], _T]) -> _T:
        # While confluent-kafka closes a consumer it lets no other thread call it, and while a
        # rebalance callback runs librdkafka answers no other one.
        return call() if self._closing or self._rebalancing else self._aside.call(call)

    @contextmanager
    def rebalancing(self) -> Iterator[None]:
        """Make all calls in this thread while it is in a rebalance callback."""
        self._rebalancing = True
        try:
            yield
        finally:
            self._rebalancing = False

    def abandon(self) -> None:
        """Leave a cluster that is given up: waits for nothing.

        Where it lives all the same, what is processed is committed there, so that it can be told
        later how far the group came.
        """
        self._pending.clear()
        commit = (lambda: self.native.commit(asynchronous=False),) if self._commits else ()
        self._aside.leave(*commit, self.native.close)

    @property
    def is_over(self) -> bool:
        """Whether all that :meth:`abandon` has begun is done."""
        return self._aside.is_over

    def wait_abandoned(self, timeout_s: float) -> None:
        """Give what :meth:`abandon` has begun some time."""
        self._aside.join(timeout_s)

    def where(self, doing: str) -> str:
        """Say what is done and where, for messages."""
        return f"{doing} as group {self.group!r} on cluster {self.cluster}"

    @property
    def needs(self) -> Needs:
        """The right that all of it takes."""
        return on_group("Read", self.group)

    def warn(self, doing: str, error: KafkaException) -> None:
        """Log what failed and is no reason to stop."""
        log.warning("%s", translate(error, self.where(doing), self.needs))


def offset_after(message: Any) -> TopicPartition:
    """Return what to commit when a message is processed."""
    # The epoch of the source's leader would make consumers on a copy refresh their metadata for
    # ever, but here it goes to the cluster it came from.
    epoch = message.leader_epoch()
    place = (message.topic(), message.partition(), message.offset() + 1)
    return TopicPartition(*place) if epoch is None else TopicPartition(*place, leader_epoch=epoch)


def subscription(
    topics: Iterable[str], cluster: str, remote_names: Mapping[str, Callable[[str], str]]
) -> list[str]:
    """Name topics as they are called on a cluster: themselves and their copies there.

    A topic that starts with ``^`` is a pattern, as in confluent-kafka.

    Args:
        topics: original names and patterns.
        cluster: alias of the cluster.
        remote_names: for each other cluster, how its topics are called on this one.
    """
    names = list(topics)
    for other, name_of in remote_names.items():
        if other != cluster:
            names += [_remote(topic, name_of) for topic in topics]
    return names


def _remote(topic: str, name_of: Callable[[str], str]) -> str:
    if not topic.startswith("^"):
        return name_of(topic)
    prefix = "".join(f"\\{char}" if char == "." else char for char in name_of(""))
    # librdkafka's patterns are POSIX's: the alternatives belong together behind the prefix.
    return f"^{prefix}({topic[1:].replace('|^', '|')})"


def _place(message: Any) -> Place:
    return message.topic(), message.partition()


def _name(place: Place) -> str:
    return f"{place[0]}-{place[1]}"
