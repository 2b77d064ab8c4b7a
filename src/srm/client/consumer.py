"""A consumer that follows its group from cluster to cluster, used like confluent-kafka's.

It follows its group's route. On *go* it reads from the route's cluster. On *hold* it commits what
the application has processed, leaves the group and waits. On every cluster it reads the topics and
their copies from the other clusters, so it sees every record on any cluster.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, Self, get_args

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from srm.client.errors import named_errors, with_place
from srm.client.group_follower import SLICE_S, GroupFollower, RebalanceCallback
from srm.client.routing.following import same_order
from srm.client.routing.membership import Membership, offset_after
from srm.client.routing.messages import FailoverMessage
from srm.client.routing.routing import RoutingWatcher, default_client_id
from srm.client.settings import ClientSettings, float_of, load_client_config
from srm.client.thread_registry import forget_consumer, note_consumer
from srm.config.model import Config
from srm.errors import GivenUpError, UsageError
from srm.kafka.admin.clients import ClientLog
from srm.kafka.wire.errors import Needs, on_topic, translate

log = logging.getLogger(__name__)

Processing = Literal["automatic", "explicit"]

_CLOSE_S: Final = 3.0
_MOST_MESSAGES: Final = 1_000_000
_DEFAULTS: Final = {
    "auto.offset.reset": "earliest",
    "auto.commit.interval.ms": "1000",
    # Copies of topics are created while consumers run.
    "topic.metadata.refresh.interval.ms": "5000",
}


class FailoverConsumer(GroupFollower):
    """Member of a consumer group that moves with it; for one thread at a time.

    Called like ``confluent_kafka.Consumer``, with its exceptions; docs/clients.md lists the
    differences. ``poll`` and ``consume`` follow the route.

    Args:
        conf: properties as for ``confluent_kafka.Consumer``, callbacks included;
            ``bootstrap.servers`` is not used. ``auto.offset.reset`` is ``earliest`` unless given.
        clusters: the clusters, or the file that names them; see
            :func:`srm.client.settings.load_client_config`.
        home: cluster to start on while no route is set; the first of ``clusters`` by default.
        processing: ``automatic``: a message counts as processed at the next ``poll`` or
            ``consume``;
            ``explicit``: after :meth:`done`, :meth:`store_offsets` or :meth:`commit`. By default
            explicit if ``enable.auto.offset.store`` is false, else automatic.
        watcher: a watcher shared with other clients, started or not; not closed by this one.
        logger: as for ``confluent_kafka.Consumer``.

    Raises:
        ConfigError: the clusters are not known.
        KafkaException: a property is invalid.
        UsageError: ``processing`` is neither of the two.
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
        if processing not in {None, *get_args(Processing)}:
            raise UsageError(f"processing={processing!r} is unknown: automatic or explicit")
        self.processing: Processing = processing or ("automatic" if stores else "explicit")
        client_id = str(conf.get("client.id") or default_client_id("consumer"))
        config = watcher.config if clusters is None and watcher else load_client_config(clusters)
        forced = {
            "client.id": client_id,
            "enable.auto.offset.store": "false",
            "allow.auto.create.topics": "false",
        }
        settings = ClientSettings(config, "consumer", conf, defaults=_DEFAULTS, forced=forced)
        Consumer(settings.without_cluster(), logger=logger or ClientLog()).close()
        group = str(conf["group.id"])
        super().__init__(
            settings, group, client_id, watcher or RoutingWatcher(config, home), logger
        )
        self._owns_watcher = watcher is None
        self._commits = _flag(conf, "enable.auto.commit")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Any]:
        """Yield messages across moves until :meth:`close` is called.

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

    # ----- subscribing

    def subscribe(
        self,
        topics: list[str],
        on_assign: RebalanceCallback | None = None,
        on_revoke: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
    ) -> None:
        """Subscribe to original topic names or patterns (``^...``); copies are read too.

        The callbacks get this consumer and the partitions on its present cluster.
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
        """Drop the subscription and leave the group."""
        self._check_open()
        self._topics = None
        if self._member is not None:
            self._member.native.unsubscribe()

    # ----- reading

    def poll(self, timeout: float = -1) -> Any:
        """Return the next message, None on a timeout or while the group is held.

        In automatic processing earlier messages count as processed. A message may be an error,
        as in confluent-kafka: see its ``error()``.

        Args:
            timeout: seconds to wait; less than 0: no limit.

        Raises:
            UnavailableError: no cluster answers.
            KafkaException: a commit failed.
        """
        found = self._read(1, float_of(timeout))
        return found[0] if found else None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Any]:
        """Return up to ``num_messages`` messages of one stay on one cluster; as :meth:`poll`."""
        if not 0 <= num_messages <= _MOST_MESSAGES:
            raise ValueError("num_messages must be between 0 and 1000000 (1M)")
        return list(self._read(num_messages, float_of(timeout)))

    def _read(self, count: int, timeout: float) -> list[FailoverMessage]:
        self._check_open()
        note_consumer(self)
        self._inside = True
        try:
            self._settle()
            self._watcher.start(subjects=[self._subject])
            self._wait_for(count, timeout)
            if self._failures:
                raise self._failures.pop(0)
            return self._hand_over(count)
        finally:
            self._inside = False

    def _wait_for(self, count: int, timeout: float) -> None:
        """Wait until the member has enough messages; a hold drops the member with its messages."""
        deadline = None if timeout < 0 else time.monotonic() + timeout
        while True:
            route = self._watcher.route(self._subject)
            if not same_order(route, self._followed):
                self._follow(route)
            left = SLICE_S if deadline is None else max(0.0, deadline - time.monotonic())
            missing = count if self._member is None else count - self._member.ready
            if self._member is None:
                self._watcher.wait_change(self._subject, route, left)
            elif missing > 0:
                self._member.fetch(missing, min(left, SLICE_S))
                missing = count - self._member.ready
            if missing <= 0 or self._failures:
                return
            over = deadline is not None and time.monotonic() >= deadline
            if over and same_order(self._watcher.route(self._subject), route):
                return

    def _hand_over(self, count: int) -> list[FailoverMessage]:
        if self._member is None:
            return []
        if self._member.fresh and self._followed is not None:
            try:
                positions = self._member.start_offsets()
            except GivenUpError:
                return []
            self._announcer.reach(self._subject, self._followed, "resumed", positions)
        found = self._member.take(count)
        self._current = [message for message in found if message.error() is None]
        for message in found:
            error = message.error()
            if error is not None:
                where = self._member.where("reading")
                message.set_error(with_place(error, where, self._needs(message.topic())))
        return found

    def _needs(self, topic: str | None) -> Needs:
        group = self._member.needs if self._member is not None else {}
        return {**on_topic("Read", topic or ", ".join(self._topics or ())), **group}

    # ----- processed messages

    def done(self, message: Any) -> None:
        """Mark a message, and all before it in its partition, as processed.

        A message of an earlier stay, on this or another cluster, has no effect: it is read again
        and announced as not committed.
        """
        self._check_open()
        self._current = [other for other in self._current if other is not message]
        self._process([message])

    def store_offsets(
        self, message: Any = None, offsets: list[TopicPartition] | None = None
    ) -> None:
        """Mark offsets as processed; ``message`` as in :meth:`done`.

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
            self._open_member(0.0, "storing offsets").store(offsets)

    def commit(
        self,
        message: Any = None,
        offsets: list[TopicPartition] | None = None,
        asynchronous: bool = True,  # noqa: FBT001, FBT002 -- confluent-kafka's signature
    ) -> list[TopicPartition] | None:
        """Commit, as in confluent-kafka.

        Without arguments, automatic processing commits all messages handed over and marks them as
        processed. Explicit processing then commits what was stored or marked with :meth:`done`.
        A message, or offsets, of an earlier stay have no effect.

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
        if self._member is None or self._member.given_up:
            return self._commit_without_member(offsets, asynchronous=asynchronous)
        try:
            committed = self._commit_on(self._member, offsets, asynchronous=asynchronous)
        except GivenUpError:
            log.warning(
                "group %s: %s is abandoned, whether the last commit there succeeded is unknown",
                *(self.group, self._member.cluster),
            )
            return []
        if message is not None:
            self._note_processed()
        return committed

    def _commit_on(
        self, member: Membership, offsets: list[TopicPartition] | None, *, asynchronous: bool
    ) -> list[TopicPartition] | None:
        with named_errors(member.where("committing"), member.needs):
            if not asynchronous:
                return member.commit(offsets)
            which = {} if offsets is None else {"offsets": offsets}
            member.native.commit(asynchronous=True, **which)
            return None

    def _commit_without_member(
        self, offsets: list[TopicPartition] | None, *, asynchronous: bool
    ) -> list[TopicPartition] | None:
        if offsets is not None:
            self._open_member(0.0, "committing")
        return None if asynchronous else []  # this member committed when it left

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
                "group %s: %d messages of an earlier stay were processed too late to be committed "
                "and are read again",
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
        """Return whether offsets are of this stay; before the first move all are."""
        if self._epoch <= 1 or self._member is None or self._member.has_handed_over(offsets):
            return True
        log.warning(
            "group %s: offsets after the last record read since this member moved to %s are not "
            "committed: they are of an earlier stay",
            self.group,
            self._member.cluster,
        )
        return False

    # ----- closing

    def close(self) -> None:
        """Commit what is processed and leave the group.

        In automatic processing the last messages handed over do not count as processed: call
        :meth:`done` or :meth:`commit` before.

        Raises:
            KafkaException: the commit failed.
        """
        if self._closed:
            return
        try:
            if self._member is not None:
                if self._is_given_up(self._member.cluster):
                    self._abandon(self._member)
                else:
                    self._leave(self._member)
        finally:
            self._closed = True
            if self._member is not None:  # its commit failed, which is raised
                self._member.close()
                self._member = None
            over = time.monotonic() + _CLOSE_S
            for member in self._abandoned:
                member.wait_abandoned(max(0.0, over - time.monotonic()))
            forget_consumer(self)
            self._announcer.close()
            if self._owns_watcher:
                self._watcher.close()
        if self._failures:
            raise self._failures.pop(0)


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
