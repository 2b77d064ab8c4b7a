"""A consumer that follows its group from cluster to cluster, used like confluent-kafka's.

Its group's route decides: on *go* it reads on the route's cluster, on *hold* it commits what the
application has finished, leaves the group and waits. On every cluster it reads the topics
themselves and their copies from the other clusters, so it sees every record wherever it is.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from srm.client.announcing import Announcer
from srm.client.errors import ClosedError, named, named_errors
from srm.client.following import next_step, same_order
from srm.client.membership import Membership, offset_after, subscription
from srm.client.messages import FailoverMessage
from srm.client.routing import RoutingWatcher, default_client_id
from srm.client.same_thread import forget_consumer, note_consumer
from srm.client.settings import ClientSettings, clusters_of
from srm.config.model import Config
from srm.domain.move.routes import Route, group_subject
from srm.domain.topics import Flow
from srm.errors import UsageError
from srm.kafka.clients import ClientLog
from srm.kafka.errors import translate
from srm.kafka.rights import Needs, on_topic

log = logging.getLogger(__name__)

Processing = Literal["automatic", "explicit"]
RebalanceCallback = Callable[[Any, list[TopicPartition]], None]

_SLICE_S: Final = 0.1
_MOST_MESSAGES: Final = 1_000_000
_DEFAULTS: Final = {
    "auto.offset.reset": "earliest",
    "auto.commit.interval.ms": "1000",
    # Copies of topics come into being while consumers run.
    "topic.metadata.refresh.interval.ms": "5000",
}
_STATE: Final = KafkaError._STATE  # noqa: SLF001 -- librdkafka's local codes are named so


class GroupMetadata:
    """What ``send_offsets_to_transaction`` needs of a consumer, as of one stay on one cluster."""

    def __init__(self, membership: Membership) -> None:
        self.cluster = membership.cluster
        self.native = membership.native.consumer_group_metadata()
        self._membership = membership

    def covers(self, offsets: Sequence[TopicPartition]) -> bool:
        """Whether these offsets were read in that stay."""
        return self._membership.has_handed_over(offsets)


class FailoverConsumer:
    """Member of a consumer group that moves with it; for one thread at a time.

    Called like ``confluent_kafka.Consumer``, with its exceptions; what is different is listed in
    docs/clients.md. ``poll`` and ``consume`` follow the route.

    Args:
        conf: properties as for ``confluent_kafka.Consumer``, callbacks included;
            ``bootstrap.servers`` is not used. ``auto.offset.reset`` is ``earliest`` unless given.
        clusters: the clusters, or the file that names them; see
            :func:`srm.client.settings.load_client_config`.
        home: cluster to start on while no route is set; the first of ``clusters`` by default.
        processing: ``automatic``: a message counts as processed when the next one is asked for;
            ``explicit``: when :meth:`done`, :meth:`store_offsets` or :meth:`commit` say so. By
            default explicit where ``enable.auto.offset.store`` is false, else automatic.
        watcher: a watcher shared with other clients, started or not; not closed by this one.
        logger: as for ``confluent_kafka.Consumer``.

    Raises:
        ConfigError: the clusters are not known.
        KafkaException: a property cannot be used.
        ValueError: ``group.id`` is missing.
    """

    def __init__(
        self,
        conf: Mapping[str, Any],
        *,
        clusters: Config | Path | str | None = None,
        home: str | None = None,
        processing: Processing | None = None,
        watcher: RoutingWatcher | None = None,
        logger: Any = None,
    ) -> None:
        stores = _flag(conf, "enable.auto.offset.store")
        self.processing: Processing = processing or ("automatic" if stores else "explicit")
        self.group = str(conf.get("group.id", ""))
        self.client_id = str(conf.get("client.id") or default_client_id("consumer"))
        self._config = watcher.config if clusters is None and watcher else clusters_of(clusters)
        self._commits = _flag(conf, "enable.auto.commit")
        forced = {
            "client.id": self.client_id,
            "enable.auto.offset.store": "false",
            "allow.auto.create.topics": "false",
        }
        self._settings = ClientSettings(
            self._config, "consumer", conf, defaults=_DEFAULTS, forced=forced
        )
        self._logger = logger or ClientLog()
        Consumer(self._settings.without_cluster(), logger=self._logger).close()
        self._watcher = watcher or RoutingWatcher(self._config, home)
        self._owns_watcher = watcher is None
        self._announcer = Announcer(self._watcher, self.client_id, "consumer")
        self._subject = group_subject(self.group)
        self._topics: list[str] | None = None
        self._callbacks: dict[str, RebalanceCallback | None] = {}
        self._followed: Route | None = None
        self._member: Membership | None = None
        self._epoch = 0
        self._current: list[FailoverMessage] = []
        self._failures: list[BaseException] = []
        self._inside = False
        self._leaving = False
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Any]:
        """Yield messages for ever, across moves, until :meth:`close` is called.

        Raises:
            SrmError: the cluster refuses the read.
        """
        while not self._closed:
            message = self.poll(1.0)
            if message is None:
                continue
            if message.error() is not None:
                raise translate(message.error(), f"reading on cluster {message.cluster}")
            yield message

    @property
    def cluster(self) -> str | None:
        """Alias of the cluster it reads on, None while it is held or not started."""
        return self._member.cluster if self._member is not None else None

    # ----- subscribing

    def subscribe(
        self,
        topics: list[str],
        on_assign: RebalanceCallback | None = None,
        on_revoke: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
    ) -> None:
        """Choose topics by original names or patterns (``^...``); copies are read as well.

        The callbacks get this consumer and the partitions, on whichever cluster it is.
        """
        self._check_open()
        _check_subscription(
            topics, {"on_assign": on_assign, "on_revoke": on_revoke, "on_lost": on_lost}
        )
        self._callbacks = {"on_assign": on_assign, "on_revoke": on_revoke, "on_lost": on_lost}
        self._topics = list(topics)
        if self._member is not None:
            self._subscribe(self._member)

    def unsubscribe(self) -> None:
        """Give up the subscription; the group has no member in this consumer any more."""
        self._check_open()
        self._topics = None
        if self._member is not None:
            self._member.native.unsubscribe()

    # ----- reading

    def poll(self, timeout: float = -1) -> Any:
        """Return the next message, None when there is none in time or the group is held.

        In automatic processing the messages before count as processed. A message may be an error,
        as in confluent-kafka: see its ``error()``.

        Args:
            timeout: seconds to wait; less than 0: until there is one.

        Raises:
            UnavailableError: no cluster answers.
            KafkaException: a commit failed.
        """
        found = self._read(1, float_of(timeout))
        return found[0] if found else None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Any]:
        """Return up to ``num_messages`` messages of one stay on one cluster, as :meth:`poll`."""
        if not 0 <= num_messages <= _MOST_MESSAGES:
            raise ValueError("num_messages must be between 0 and 1000000 (1M)")
        return list(self._read(num_messages, float_of(timeout)))

    def _read(self, count: int, timeout: float) -> list[FailoverMessage]:
        self._check_open()
        note_consumer(self)
        self._inside = True
        try:
            self._settle()
            self._watcher.start()
            found = self._wait_for(count, timeout)
            if self._failures:
                self._give_back(found)
                raise self._failures.pop(0)
            return self._hand_over(found)
        finally:
            self._inside = False

    def _wait_for(self, count: int, timeout: float) -> list[FailoverMessage]:
        deadline = None if timeout < 0 else time.monotonic() + timeout
        found: list[FailoverMessage] = []
        while True:
            route = self._watcher.route(self._subject)
            if not same_order(route, self._followed):
                if found:
                    return found  # a batch is of one stay; the next call follows
                self._follow(route)
            left = _SLICE_S if deadline is None else max(0.0, deadline - time.monotonic())
            if self._member is None:
                self._watcher.wait_change(self._subject, route, left)
            else:
                found += self._member.fetch(count - len(found), min(left, _SLICE_S))
            if len(found) >= count or self._failures:
                return found
            over = deadline is not None and time.monotonic() >= deadline
            if over and same_order(self._watcher.route(self._subject), route):
                return found

    def _give_back(self, found: list[FailoverMessage]) -> None:
        if self._member is not None:
            self._member.give_back(found)

    def _hand_over(self, found: list[FailoverMessage]) -> list[FailoverMessage]:
        if self._member is None:
            return found
        if self._member.fresh and self._followed is not None:
            positions = self._member.start_offsets()
            self._announcer.reach(self._subject, self._followed, "resumed", positions)
        self._member.hand_over(found)
        self._current = [message for message in found if message.error() is None]
        for message in found:
            error = message.error()
            if error is not None:
                where = self._member.where("reading")
                message.set_error(named(error, where, self._needs(message.topic())))
        return found

    def _needs(self, topic: str | None) -> Needs:
        return {**on_topic("Read", topic or ", ".join(self._topics or ())), **self._member_needs()}

    def _member_needs(self) -> Needs:
        return self._member.needs if self._member is not None else {}

    # ----- what is processed

    def done(self, message: Any) -> None:
        """Count a message, and all before it in its partition, as processed now.

        A message of an earlier stay, on this or another cluster, changes nothing: it is read again,
        and counted as such.
        """
        self._check_open()
        self._current = [other for other in self._current if other is not message]
        self._process([message])

    def store_offsets(
        self, message: Any = None, offsets: list[TopicPartition] | None = None
    ) -> None:
        """Count as processed; ``message`` as in :meth:`done`.

        Raises:
            KafkaException: the offsets cannot be stored.
        """
        self._check_open()
        _one_of(message, offsets)
        if offsets is None:
            if message is None:
                raise ValueError("expected either message or offsets")
            self.done(message)
        elif self._owns(offsets):
            self._opened(0.0, "storing offsets").store(offsets)

    def commit(
        self,
        message: Any = None,
        offsets: list[TopicPartition] | None = None,
        asynchronous: bool = True,  # noqa: FBT001, FBT002 -- confluent-kafka's signature
    ) -> list[TopicPartition] | None:
        """Commit, as in confluent-kafka.

        Without a message or offsets: in automatic processing all messages handed over, which count
        as processed by this; in explicit processing what was stored or is done. A message, or
        offsets, of an earlier stay change nothing.

        Raises:
            KafkaException: the commit failed.
        """
        self._check_open()
        _one_of(message, offsets)
        if message is not None:
            if message.error() is not None:
                raise KafkaException(message.error())
            if self._is_late(message):
                self._process([message])
                return None if asynchronous else []
            offsets = [offset_after(message)]
            self._current = [other for other in self._current if other is not message]
        elif offsets is None:
            if self.processing == "automatic":
                self._settle()
        elif not self._owns(offsets):
            return None if asynchronous else []
        if self._member is None:
            return self._commit_without_member(offsets, asynchronous=asynchronous)
        member = self._member
        with named_errors(member.where("committing"), member.needs):
            if offsets is None:
                committed = member.native.commit(asynchronous=asynchronous)
            else:
                committed = member.native.commit(offsets=offsets, asynchronous=asynchronous)
        if message is not None:
            self._note_processed()
        return committed

    def _commit_without_member(
        self, offsets: list[TopicPartition] | None, *, asynchronous: bool
    ) -> list[TopicPartition] | None:
        if offsets is not None:
            self._opened(0.0, "committing")
        return None if asynchronous else []  # it was committed when this member left

    def _settle(self) -> None:
        if self._current and self.processing == "automatic":
            current, self._current = self._current, []
            self._process(current)

    def _process(self, messages: list[Any]) -> None:
        late = [message for message in messages if self._is_late(message)]
        lost: dict[str, int] = {}
        for message in late:
            name = f"{message.topic()}-{message.partition()}"
            lost[name] = lost.get(name, 0) + 1
        if late:
            log.warning(
                "group %s: %d messages of an earlier stay are done too late to be committed, they "
                "are read again",
                self.group,
                len(late),
            )
        elif self._member is not None:
            with named_errors(self._member.where("storing offsets"), self._member.needs):
                lost = self._member.process(messages)
            self._note_processed()
        self._announcer.lose(self._subject, lost)

    def _note_processed(self) -> None:
        if self._followed is not None and not self._announcer.has_reached(
            self._subject, "processed"
        ):
            self._announcer.reach(self._subject, self._followed, "processed")

    def _is_late(self, message: Any) -> bool:
        epoch = getattr(message, "epoch", self._epoch)
        return self._member is None or epoch != self._epoch

    def _owns(self, offsets: list[TopicPartition]) -> bool:
        """Whether offsets are of this stay; before the first move every offset is."""
        if self._epoch <= 1 or self._member is None or self._member.has_handed_over(offsets):
            return True
        log.warning(
            "group %s: offsets beyond what was read since this member came to %s are not "
            "committed: they are of an earlier stay",
            self.group,
            self._member.cluster,
        )
        return False

    # ----- where it stands

    def committed(
        self, partitions: list[TopicPartition], timeout: float = -1
    ) -> list[TopicPartition]:
        """Return committed offsets on the present cluster."""
        member = self._opened(timeout, "reading committed offsets")
        with named_errors(member.where("reading committed offsets"), member.needs):
            return member.native.committed(partitions, timeout=timeout)

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return the offsets after the last messages; none while held."""
        self._check_open()
        if self._member is None:
            return [TopicPartition(one.topic, one.partition) for one in partitions]
        return self._member.native.position(partitions)

    def assignment(self) -> list[TopicPartition]:
        """Return the assigned partitions; none while held."""
        self._check_open()
        return [] if self._member is None else self._member.native.assignment()

    def pause(self, partitions: list[TopicPartition]) -> None:
        """Pause partitions until the next move or assignment; nothing happens while held."""
        self._check_open()
        if self._member is not None:
            self._member.native.pause(partitions)

    def resume(self, partitions: list[TopicPartition]) -> None:
        """Read paused partitions again; nothing happens while held."""
        self._check_open()
        if self._member is not None:
            self._member.native.resume(partitions)

    def seek(self, partition: TopicPartition) -> None:
        """Continue at an offset; messages of the partition in hand do not count as processed.

        Raises:
            KafkaException: the partition is not assigned, or the group is held.
        """
        member = self._opened(0.0, "seeking")
        member.native.seek(partition)
        place = (partition.topic, partition.partition)
        member.rewind(place)
        self._current = [m for m in self._current if (m.topic(), m.partition()) != place]

    def consumer_group_metadata(self) -> Any:
        """Return what :meth:`FailoverProducer.send_offsets_to_transaction` needs."""
        return GroupMetadata(self._opened(0.0, "reading group metadata"))

    def memberid(self) -> str | None:
        """Return the member id the coordinator gave, None while held."""
        self._check_open()
        return None if self._member is None else self._member.native.memberid()

    # ----- what a rebalance callback may call

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Assign partitions, in ``on_assign`` only: a consumer that moves subscribes."""
        self._in_callback("assign").assign(partitions)

    def unassign(self) -> None:
        """Give partitions up, in ``on_revoke`` and ``on_lost`` only."""
        self._in_callback("unassign").unassign()

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Assign more partitions, in ``on_assign`` only."""
        self._in_callback("incremental_assign").incremental_assign(partitions)

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Give some partitions up, in ``on_revoke`` and ``on_lost`` only."""
        self._in_callback("incremental_unassign").incremental_unassign(partitions)

    def _in_callback(self, call: str) -> Any:
        self._check_open(leaving=True)
        if self._member is None or not (self._inside or self._leaving):
            raise UsageError(
                f"{call} outside of a rebalance callback: a consumer that moves with its group "
                "has to subscribe"
            )
        return self._member.native

    # ----- what the cluster says

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """Ask the present cluster for its topics."""
        native = self._opened(timeout, "listing topics").native
        return (
            native.list_topics(timeout=timeout)
            if topic is None
            else native.list_topics(topic, timeout)
        )

    def get_watermark_offsets(
        self,
        partition: TopicPartition,
        timeout: float = -1,
        cached: bool = False,  # noqa: FBT001, FBT002 -- confluent-kafka's signature
    ) -> tuple[int, int]:
        """Ask the present cluster for a partition's first and next offset."""
        native = self._opened(timeout, "reading watermarks").native
        return native.get_watermark_offsets(partition, timeout=timeout, cached=cached)

    def offsets_for_times(
        self, partitions: list[TopicPartition], timeout: float = -1
    ) -> list[TopicPartition]:
        """Ask the present cluster for offsets by time."""
        native = self._opened(timeout, "looking offsets up").native
        return native.offsets_for_times(partitions, timeout=timeout)

    # ----- following

    def follow(self) -> None:
        """Follow a hold now, between two calls: messages in hand do not count as processed.

        For the thread that works with the consumer, when it is about to wait for the end of a hold
        in another client: a group whose member waits cannot move.

        Raises:
            KafkaException: the commit failed.
        """
        if self._inside or self._closed or self._member is None:
            return
        route = self._watcher.route(self._subject)
        if next_step(self._member.cluster, route) == "leave":
            self._follow(route)

    def _follow(self, route: Route) -> None:
        """Do what the route says; it counts as followed only when everything of it is done."""
        member = self._member
        if member is not None and next_step(member.cluster, route) == "leave":
            self._leave(member)
        step = next_step(self.cluster, route)
        if step == "hold" and self._topics is not None:
            log.info("group %s: held, away from %s", self.group, route.cluster)
            self._announcer.reach(self._subject, route, "held")
        elif step == "open" and self._topics is not None:
            self._open(route)
        elif step == "stay":
            self._announcer.reach(self._subject, route, "resumed")
        if self._topics is not None or step != "open":
            self._followed = route

    def _open(self, route: Route) -> None:
        where = f"opening a consumer of group {self.group!r} on cluster {route.cluster}"
        with named_errors(where):
            native = Consumer(self._settings.on(route.cluster), logger=self._logger)
        self._epoch += 1
        self._member = Membership(
            native, route.cluster, self._epoch, self.group, commits=self._commits
        )
        if self._topics is not None:
            self._subscribe(self._member)
        if route.generation == 0 or self._epoch == 1:
            self._announcer.reach(self._subject, route, "resumed")

    def _subscribe(self, member: Membership) -> None:
        names = subscription(self._topics or (), member.cluster, self._remote_names(member.cluster))
        with named_errors(member.where("subscribing")):
            member.native.subscribe(
                names, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
            )
        log.info("group %s: reads %s on %s", self.group, ", ".join(names), member.cluster)

    def _remote_names(self, cluster: str) -> dict[str, Callable[[str], str]]:
        return {
            other: partial(
                self._config.flow(Flow(other, cluster)).policy.format_remote_topic, other
            )
            for other in self._config.clusters
            if other != cluster
        }

    def _opened(self, timeout: float, doing: str) -> Membership:
        """Return the member, opening it or waiting for the end of a hold as long as allowed."""
        self._check_open()
        if self._member is not None:
            return self._member
        self._watcher.start()
        deadline = time.monotonic() + timeout
        while True:
            route = self._watcher.route(self._subject)
            if route.state == "go":
                self._open(route)
                self._followed = route if self._topics is not None else None
                return self._member  # type: ignore[return-value]  # _open has set it
            left = deadline - time.monotonic() if timeout >= 0 else _SLICE_S
            if left <= 0:
                text = f"{doing}: group {self.group!r} is held by move {route.move_id}; try again"
                raise KafkaException(KafkaError(_STATE, text, retriable=True))
            self._watcher.wait_change(self._subject, route, min(left, _SLICE_S))

    def _leave(self, member: Membership) -> None:
        """Commit what is processed, then leave the group.

        Raises:
            KafkaException: the commit failed; the member stays, so that nothing is lost silently.
        """
        self._announcer.forget_losses(self._subject)
        self._leaving = True
        try:
            if self._commits and not member.commit_processed():
                held = [TopicPartition(*place) for place in member.owned]
                self._announcer.lose(self._subject, member.uncommitted(held))
            with named_errors(member.where("leaving"), member.needs):
                member.native.close()
        finally:
            self._leaving = False
        self._member = None
        self._current = []

    # ----- rebalance callbacks, run within poll, consume and close

    def _assigned(self, _native: Any, partitions: list[TopicPartition]) -> None:
        if self._member is not None:
            self._member.gain(partitions)
            self._call("on_assign", partitions)

    def _revoked(self, _native: Any, partitions: list[TopicPartition]) -> None:
        """Commit before others take over; runs inside poll, so no message is being worked on."""
        member = self._member
        if member is None:
            return
        self._call("on_revoke", partitions)
        if self._commits:
            try:
                member.commit_once()
            except KafkaException as error:
                member.warn("committing at a rebalance", error)
        elif self._leaving:
            self._announcer.lose(self._subject, member.uncommitted(partitions))
        member.lose(partitions)

    def _lost(self, _native: Any, partitions: list[TopicPartition]) -> None:
        if self._member is None:
            return
        self._announcer.lose(self._subject, self._member.uncommitted(partitions))
        self._member.lose(partitions)
        self._call("on_lost" if self._callbacks.get("on_lost") else "on_revoke", partitions)

    def _call(self, name: str, partitions: list[TopicPartition]) -> None:
        """Run the application's callback; what it raises is raised when the call is over."""
        callback = self._callbacks.get(name)
        if callback is None:
            return
        try:
            callback(self, partitions)
        except Exception as error:
            log.exception("group %s: %s raised", self.group, name)
            self._failures.append(error)

    # ----- the end

    def close(self) -> None:
        """Commit what is processed and leave the group.

        In automatic processing the last messages handed over are not processed: call :meth:`done`
        or :meth:`commit` before.

        Raises:
            KafkaException: the commit failed.
        """
        if self._closed:
            return
        try:
            if self._member is not None:
                self._leave(self._member)
        finally:
            self._closed = True
            forget_consumer(self)
            self._announcer.close()
            if self._owns_watcher:
                self._watcher.close()
        if self._failures:
            raise self._failures.pop(0)

    def _check_open(self, *, leaving: bool = False) -> None:
        if self._closed and not (leaving and self._leaving):
            raise ClosedError("Consumer closed")


def float_of(timeout: float) -> float:
    """Take a timeout as confluent-kafka does: a number of seconds, nothing else.

    Raises:
        TypeError: it is not a number.
    """
    if isinstance(timeout, int | float):
        return float(timeout)
    raise TypeError(f"must be real number, not {type(timeout).__name__}")


def _flag(conf: Mapping[str, Any], name: str) -> bool:
    return str(conf.get(name, True)).lower() not in {"false", "0", "f"}


def _one_of(message: Any, offsets: Any) -> None:
    if message is not None and offsets is not None:
        raise ValueError("message and offsets are mutually exclusive")


def _check_subscription(topics: Any, callbacks: Mapping[str, Any]) -> None:
    if not isinstance(topics, list) or not all(isinstance(topic, str) for topic in topics):
        raise TypeError("expected list of topic unicode strings")
    for name, callback in callbacks.items():
        if callback is not None and not callable(callback):
            raise TypeError(f"{name} expects a callable")
    if not topics:
        invalid = KafkaError._INVALID_ARG  # noqa: SLF001 -- librdkafka's local codes are named so
        raise KafkaException(KafkaError(invalid, "Failed to set subscription: no topics"))
