"""A consumer that follows its group from cluster to cluster, used like confluent-kafka's.

On every cluster it reads the topics and their copies from the other clusters, so it sees every
record on any cluster. On *hold* it commits what the application has processed, and leaves.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, Self, get_args

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from srm.client import routing
from srm.client.forking import keep_for_good, survive_fork
from srm.client.membership import Membership, offset_after, subscription
from srm.client.messages import (
    ClosedError,
    FailoverMessage,
    ForkedError,
    named_errors,
    with_place,
)
from srm.client.settings import SERVED, ClientSettings, float_of, load_client_config
from srm.client.threads import MINE
from srm.config.model import Config
from srm.domain.moves.routing import Route, group_subject
from srm.errors import GivenUpError, UsageError
from srm.kafka.admin.clients import ClientLog
from srm.kafka.wire.errors import Needs, on_topic, translate

log = logging.getLogger(__name__)

Partitions = list[TopicPartition]
RebalanceCallback = Callable[[Any, Partitions], None]

SLICE_S: Final = 0.1
"""Seconds after which a waiting consumer checks its route."""

_STATE: Final = KafkaError._STATE  # noqa: SLF001 -- librdkafka's local codes are named so


class GroupMetadata:
    """Group metadata for ``send_offsets_to_transaction``, of one stay on one cluster."""

    def __init__(self, membership: Membership) -> None:
        self.cluster = membership.cluster
        self.native = membership.native.consumer_group_metadata()
        self._membership = membership

    def covers(self, offsets: Sequence[TopicPartition]) -> bool:
        """Return whether these offsets were read in that stay."""
        return self._membership.has_handed_over(offsets)

    def confirm(self, offsets: Sequence[TopicPartition]) -> None:
        """Record that a transaction has committed these offsets."""
        self._membership.confirm(offsets)


Processing = Literal["automatic", "explicit"]

_CLOSE_S: Final = 3.0
_MOST_MESSAGES: Final = 1_000_000
_DEFAULTS: Final = {
    "auto.offset.reset": "earliest",
    "auto.commit.interval.ms": "1000",
    # Copies of topics are created while consumers run.
    "topic.metadata.refresh.interval.ms": "5000",
}


class FailoverConsumer:
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
        watcher: routing.RoutingWatcher | None = None,
        logger: Any = None,
    ) -> None:
        stores = _flag(conf, "enable.auto.offset.store")
        if processing not in {None, *get_args(Processing)}:
            raise UsageError(f"processing={processing!r} is invalid; use automatic or explicit")
        self.processing: Processing = processing or ("automatic" if stores else "explicit")
        client_id = str(conf.get("client.id") or routing.default_client_id("consumer"))
        config = watcher.config if clusters is None and watcher else load_client_config(clusters)
        forced = {
            "client.id": client_id,
            "enable.auto.offset.store": "false",
            "allow.auto.create.topics": "false",
        }
        settings = ClientSettings(config, "consumer", dict(conf), _DEFAULTS, forced)
        logger = logger or ClientLog()
        Consumer(settings.without_cluster(), logger=logger).close()
        group = str(conf["group.id"])
        self.group = group
        self.client_id = client_id
        self._settings = settings
        self._logger = logger
        self._watcher = watcher or routing.RoutingWatcher(config, home)
        self._owns_watcher = watcher is None
        self._announcer = routing.Announcer(self._watcher, client_id)
        self._subject = group_subject(group)
        self._commits = _flag(conf, "enable.auto.commit")
        self._topics: list[str] | None = None
        self._callbacks: dict[str, RebalanceCallback | None] = {}
        self._followed: Route | None = None
        self._member: Membership | None = None
        self._abandoned: list[Membership] = []
        self._epoch = 0
        self._current: list[FailoverMessage] = []
        self._failures: list[BaseException] = []
        self._inside = False
        self._leaving = False
        self._interrupted = False  # set by another thread: the running read returns early
        self._closed = self._forked = False
        survive_fork(self)

    def after_fork(self) -> None:
        """Refuse all use in a child process if it was opened in the parent."""
        opened = [*self._abandoned, *([self._member] if self._member is not None else [])]
        keep_for_good(*(one.native for one in opened))
        self._forked = self._forked or bool(opened)
        self._member, self._abandoned = None, []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Any]:
        """Yield messages across moves until :meth:`close`; SrmError: a read is refused."""
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
        callbacks = {"on_assign": on_assign, "on_revoke": on_revoke, "on_lost": on_lost}
        _check_subscription(topics, callbacks)
        self._callbacks = callbacks
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

        In automatic processing earlier messages count as processed. A message may be an error.
        ``timeout``: seconds; less than 0: no limit. UnavailableError: no cluster answers.
        """
        found = self._take(self._read(1, float_of(timeout)))
        return found[0] if found else None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Any]:
        """Return up to ``num_messages`` messages of one stay on one cluster; as :meth:`poll`."""
        check_count(num_messages)
        return self._take(self._read(num_messages, float_of(timeout)))

    def _read(self, count: int, timeout: float) -> int:
        """Wait for ``count`` messages; return how many :meth:`_take` may hand over at most."""
        self._check_open()
        MINE.consumers.add(self)
        self._inside = True
        try:
            self._settle()
            self._watcher.start(subjects=[self._subject])
            self._wait_for(count, timeout)
            return count if self._announce_start() else 0
        finally:
            self._inside = False

    def _wait_for(self, count: int, timeout: float) -> None:
        """Wait until the member has enough messages; a hold drops the member with its messages."""
        deadline = None if timeout < 0 else time.monotonic() + timeout
        while True:
            route = self._watcher.route(self._subject)
            if not routing.same_order(route, self._followed):
                self._follow(route)
            left = SLICE_S if deadline is None else max(0.0, deadline - time.monotonic())
            missing = count if self._member is None else count - self._member.ready
            if self._member is None:
                self._watcher.wait_change(self._subject, route, min(left, SLICE_S))
            elif missing > 0:
                self._member.fetch(missing, min(left, SLICE_S))
                missing = count - self._member.ready
            if missing <= 0 or self._failures or self._interrupted:
                return
            over = deadline is not None and time.monotonic() >= deadline
            if over and routing.same_order(self._watcher.route(self._subject), route):
                return

    def _announce_start(self) -> bool:
        """Announce where the member starts; return whether it may hand messages over."""
        if self._member is None or self._failures:
            return False
        if self._member.fresh is not None and self._followed is not None:
            if member_id := self._member.native.memberid():
                self._announcer.join(self._subject, self._member.cluster, member_id)
            works = bool(self._member.fresh)
            try:
                positions = self._member.start_offsets()
            except GivenUpError:
                return False
            if works:  # else it waits for partitions of other members
                self._announcer.reach(self._subject, self._followed, "resumed", positions)
        return True

    def _take(self, count: int) -> list[Any]:
        """Hand messages over, without a call to a cluster; a callback's exception comes first."""
        if self._failures:
            raise self._failures.pop(0)
        if self._member is None:
            return []
        found = self._member.take(count)
        self._current = [message for message in found if message.error() is None]
        for message in found:
            error = message.error()
            if error is not None:
                where = self._member.label("reading")
                message.set_error(with_place(error, where, self._needs(message.topic())))
        return found

    def _needs(self, topic: str | None) -> Needs:
        group = self._member.needs if self._member is not None else {}
        return {**on_topic("Read", topic or ", ".join(self._topics or ())), **group}

    # ----- processed messages

    def done(self, message: Any) -> None:
        """Mark a message, and all before it in its partition, as processed.

        A message of an earlier stay is read again and announced as not committed.
        """
        self._check_open()
        self._current = [other for other in self._current if other is not message]
        self._process([message])

    def store_offsets(self, message: Any = None, offsets: Partitions | None = None) -> None:
        """Mark offsets as processed; ``message`` as in :meth:`done`."""
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
        offsets: Partitions | None = None,
        asynchronous: bool = True,  # noqa: FBT001, FBT002 -- confluent-kafka's signature
    ) -> Partitions | None:
        """Commit, as in confluent-kafka.

        Without arguments, automatic processing commits all messages handed over and marks them as
        processed. Explicit processing then commits what was stored or marked with :meth:`done`.
        A message, or offsets, of an earlier stay have no effect.
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
            self._settle()
        elif not self._owns(offsets):
            return None if asynchronous else []
        if self._member is None or self._member.given_up:
            if offsets is not None:
                self._open_member(0.0, "committing")
            return None if asynchronous else []  # this member committed when it left
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
        self, member: Membership, offsets: Partitions | None, *, asynchronous: bool
    ) -> Partitions | None:
        with named_errors(member.label("committing"), member.needs):
            if not asynchronous or self._leaving:  # the answer would come too late
                return member.commit(offsets)
            which = {} if offsets is None else {"offsets": offsets}
            member.native.commit(asynchronous=True, **which)
            return None

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
                *(self.group, len(late)),
            )
        elif self._member is not None:
            with named_errors(self._member.label("storing offsets"), self._member.needs):
                lost = self._member.process(messages)
            self._note_processed()
        self._announcer.lose(self._subject, lost)

    def _note_processed(self) -> None:
        subject, announcer = self._subject, self._announcer
        if self._followed is not None and not announcer.has_reached(subject, "processed"):
            announcer.reach(subject, self._followed, "processed")

    def _is_late(self, message: Any) -> bool:
        epoch = getattr(message, "epoch", self._epoch)
        return self._member is None or epoch != self._epoch

    def _owns(self, offsets: Partitions) -> bool:
        """Return whether offsets are of this stay; before the first move all are."""
        if self._epoch <= 1 or self._member is None or self._member.has_handed_over(offsets):
            return True
        log.warning(
            "group %s: offsets after the last record read since this member moved to %s are not "
            "committed: they are of an earlier stay",
            *(self.group, self._member.cluster),
        )
        return False

    # ----- closing

    def close(self) -> None:
        """Commit what is processed and leave the group.

        In automatic processing the last messages count only after :meth:`done` or :meth:`commit`.
        """
        if self._closed:
            return
        try:
            if self._member is not None:
                self._leave(self._member, self._watcher.route(self._subject))
        finally:
            self._closed = True
            if self._member is not None:  # its commit failed, which is raised
                self._member.close()
                self._member = None
            over = time.monotonic() + _CLOSE_S
            for member in self._abandoned:
                member.aside.join(max(0.0, over - time.monotonic()))
            MINE.consumers.discard(self)
            self._announcer.close()
            if self._owns_watcher:
                self._watcher.close()
        if self._failures:
            raise self._failures.pop(0)

    # ----- following

    @property
    def cluster(self) -> str | None:
        """Alias of the cluster it reads from, None while it is held or not started."""
        return self._member.cluster if self._member is not None else None

    def follow(self) -> None:
        """Follow a hold now, between two calls, before this thread waits in another client."""
        if self._inside or self._closed or self._member is None:
            return
        route = self._watcher.route(self._subject)
        if routing.next_step(self._member.cluster, route) == "leave":
            self._follow(route)

    def _follow(self, route: Route) -> None:
        """Follow a route; it counts as followed only after its last step."""
        if self._member is not None and routing.next_step(self._member.cluster, route) == "leave":
            self._leave(self._member, route)
        step = routing.next_step(self.cluster, route)
        if step == "hold" and self._topics is not None:
            log.info("group %s: held, has left %s", self.group, route.cluster)
            self._announcer.reach(self._subject, route, "held")
        elif step == "open" and self._topics is not None:
            self._open(route)
        elif step == "stay":
            self._announcer.reach(self._subject, route, "resumed")
        if self._topics is not None or step != "open":
            self._followed = route

    def _open(self, route: Route) -> None:
        cluster = route.cluster
        with named_errors(f"opening a consumer of group {self.group!r} on cluster {cluster}"):
            native = Consumer(self._properties(cluster), logger=self._logger)
        self._epoch += 1

        def is_abandoned() -> bool:
            return routing.is_given_up(cluster, self._followed, self._watcher.route(self._subject))

        self._member = Membership(
            native, cluster, self._epoch, self.group, self._commits, is_abandoned
        )
        if self._topics is not None:
            self._subscribe(self._member)
        if route.generation == 0 or self._epoch == 1:
            self._announcer.reach(self._subject, route, "resumed")

    def _properties(self, cluster: str) -> dict[str, Any]:
        """Return the properties of the next stay; its callbacks do nothing after it."""
        properties, epoch = self._settings.on(cluster), self._epoch + 1
        for name in SERVED:
            if callable(callback := properties.get(name)):
                properties[name] = partial(self._serve, epoch, callback)
        properties["on_commit"] = partial(self._on_commit, epoch, properties.get("on_commit"))
        return properties

    def _subscribe(self, member: Membership) -> None:
        names = subscription(self._settings.config, member.cluster, self._topics or ())
        with named_errors(member.label("subscribing")):
            member.native.subscribe(
                names,
                on_assign=partial(self._on_assign, member),
                on_revoke=partial(self._on_revoke, member),
                on_lost=partial(self._lost, member),
            )
        log.info("group %s: reads %s on %s", self.group, ", ".join(names), member.cluster)

    def _open_member(self, timeout: float, doing: str) -> Membership:
        """Return the member; open it or wait up to ``timeout`` seconds for the end of a hold."""
        self._check_open()
        if self._member is not None:
            return self._member
        self._watcher.start(subjects=[self._subject])
        deadline = time.monotonic() + timeout
        while True:
            route = self._watcher.route(self._subject)
            if route.state == "go":
                self._open(route)
                self._followed = route if self._topics is not None else None
                return self._member  # type: ignore[return-value]  # _open has set it
            left = deadline - time.monotonic() if timeout >= 0 else SLICE_S
            if left <= 0:
                text = f"{doing}: group {self.group!r} is held by move {route.move_id}; try again"
                raise KafkaException(KafkaError(_STATE, text, retriable=True))
            self._watcher.wait_change(self._subject, route, min(left, SLICE_S))

    def _leave(self, member: Membership, route: Route) -> None:
        """Commit what is processed, then leave; after a KafkaException the member is kept."""
        if routing.is_given_up(member.cluster, self._followed, route):
            self._abandon(member)
            return
        self._announcer.forget_losses(self._subject)
        self._leaving = True
        try:
            if not self._commits:
                member.read_commits()
            elif not member.commit_processed():
                self._announcer.lose(self._subject, member.count_uncommitted(member.assignment))
            with named_errors(member.label("leaving"), member.needs):
                member.close()
        except GivenUpError:  # abandoned since the check
            self._abandon(member)
        else:
            self._member = None
            self._current = []
        finally:
            self._leaving = False

    def _abandon(self, member: Membership) -> None:
        """Leave an abandoned cluster at once, without a call to it in this thread."""
        self._announcer.forget_losses(self._subject)
        member.given_up = True
        held = member.assignment
        self._leaving = True
        try:
            if held:
                self._call_lost(held)
        finally:
            self._leaving = False
        lost = {**member.unsure, **member.count_unconfirmed(held)}
        self._announcer.lose(self._subject, lost)
        named = ", ".join(f"{count} of {name}" for name, count in sorted(lost.items()))
        log.warning(
            "group %s: %s is abandoned, left at once; records processed whose commit is unknown, "
            "which may be read again: %s",
            *(self.group, member.cluster, named or "nothing"),
        )
        self._member = None
        self._current = []
        self._abandoned = [*(other for other in self._abandoned if not other.aside.is_over), member]
        member.abandon()

    # ----- callbacks, run within poll, consume and close; those of a member that has left may run
    # in a background thread and have no effect

    def _on_assign(self, member: Membership, _native: Any, partitions: Partitions) -> None:
        if member is self._member:
            member.gain(partitions)
            with member.rebalancing():
                self._call("on_assign", partitions)

    def _on_revoke(self, member: Membership, _native: Any, partitions: Partitions) -> None:
        """Commit before other members take over; inside poll, so no message is in processing."""
        if member is not self._member:
            return
        try:
            with member.rebalancing():
                self._call("on_revoke", partitions)
                if self._commits:
                    member.commit_once()
                elif self._leaving:
                    self._announcer.lose(self._subject, member.count_unconfirmed(partitions))
        except KafkaException as error:
            member.warn("committing at a rebalance", error)
            member.lose_unsure(partitions)
        member.lose(partitions)

    def _lost(self, member: Membership, _native: Any, partitions: Partitions) -> None:
        if member is self._member:
            self._announcer.lose(self._subject, member.count_unconfirmed(partitions))
            member.lose_unsure(partitions)
            with member.rebalancing():
                self._call_lost(partitions)

    def _serve(self, epoch: int, callback: Callable[..., Any], *arguments: Any) -> Any:
        """Run an application's callback if it reports on the present stay."""
        if self._member is not None and self._member.epoch == epoch:
            return callback(*arguments)
        return None

    def _on_commit(self, epoch: int, callback: Any, error: Any, offsets: Partitions) -> None:
        if self._member is not None and self._member.epoch == epoch:
            if error is None:
                self._member.confirm(offsets)
            if callback is not None:
                callback(error, offsets)

    def _call_lost(self, partitions: Partitions) -> None:
        self._call("on_lost" if self._callbacks.get("on_lost") else "on_revoke", partitions)

    def _call(self, name: str, partitions: Partitions) -> None:
        """Run the application's callback; the present call raises its exception at its end."""
        callback = self._callbacks.get(name)
        if callback is None:
            return
        try:
            callback(self, partitions)
        except Exception as error:
            log.exception("group %s: %s raised", self.group, name)
            self._failures.append(error)

    def _check_open(self, *, leaving: bool = False) -> None:
        if self._forked:
            raise ForkedError("consumer")
        if self._closed and not (leaving and self._leaving):
            raise ClosedError("Consumer closed")

    # ----- confluent-kafka's calls, with offsets of the present cluster; a held group has no
    # assignment, and a call that needs a cluster waits for the end of the hold within its timeout

    def committed(self, partitions: Partitions, timeout: float = -1) -> Partitions:
        """As confluent-kafka's, on the present cluster."""
        return self._query(timeout, "reading committed offsets", "committed", partitions)

    def position(self, partitions: Partitions) -> Partitions:
        """As confluent-kafka's, but never after a marker; without offsets while held."""
        self._check_open()
        if self._member is None:
            return [TopicPartition(one.topic, one.partition) for one in partitions]
        return self._member.position(partitions)

    def assignment(self) -> Partitions:
        """As confluent-kafka's; none while held."""
        self._check_open()
        return [] if self._member is None else self._member.native.assignment()

    def pause(self, partitions: Partitions) -> None:
        """As confluent-kafka's, until the next move or assignment; no effect while held."""
        self._check_open()
        if self._member is not None:
            self._member.native.pause(partitions)

    def resume(self, partitions: Partitions) -> None:
        """As confluent-kafka's; no effect while held."""
        self._check_open()
        if self._member is not None:
            self._member.native.resume(partitions)

    def seek(self, partition: TopicPartition) -> None:
        """As confluent-kafka's; messages of the partition in hand do not count as processed."""
        member = self._open_member(0.0, "seeking")
        member.native.seek(partition)
        place = (partition.topic, partition.partition)
        member.forget([place])
        self._current = [m for m in self._current if (m.topic(), m.partition()) != place]

    def consumer_group_metadata(self) -> Any:
        """As confluent-kafka's, for :meth:`FailoverProducer.send_offsets_to_transaction`."""
        return GroupMetadata(self._open_member(0.0, "reading group metadata"))

    def memberid(self) -> str | None:
        """As confluent-kafka's; None while held."""
        self._check_open()
        return None if self._member is None else self._member.native.memberid()

    # ----- calls allowed in a rebalance callback

    def assign(self, partitions: Partitions) -> None:
        """As confluent-kafka's, in ``on_assign`` only: a consumer that moves subscribes."""
        self._in_callback("assign").assign(partitions)

    def unassign(self) -> None:
        """As confluent-kafka's, in ``on_revoke`` and ``on_lost`` only."""
        self._in_callback("unassign").unassign()

    def incremental_assign(self, partitions: Partitions) -> None:
        """As confluent-kafka's, in ``on_assign`` only."""
        self._in_callback("incremental_assign").incremental_assign(partitions)

    def incremental_unassign(self, partitions: Partitions) -> None:
        """As confluent-kafka's, in ``on_revoke`` and ``on_lost``."""
        self._in_callback("incremental_unassign").incremental_unassign(partitions)

    def _in_callback(self, call: str) -> Any:
        self._check_open(leaving=True)
        if self._member is None or not (self._inside or self._leaving):
            raise UsageError(
                f"{call} outside of a rebalance callback: a consumer that moves with its group "
                "has to use subscribe"
            )
        return self._member.native

    # ----- queries to the cluster

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """As confluent-kafka's, of the present cluster."""
        which = {} if topic is None else {"topic": topic}
        return self._query(timeout, "listing topics", "list_topics", **which)

    def get_watermark_offsets(
        self,
        partition: TopicPartition,
        timeout: float = -1,
        cached: bool = False,  # noqa: FBT001, FBT002 -- confluent-kafka's signature
    ) -> tuple[int, int]:
        """As confluent-kafka's, of the present cluster."""
        doing, call = "reading watermarks", "get_watermark_offsets"
        return self._query(timeout, doing, call, partition, cached=cached)

    def offsets_for_times(self, partitions: Partitions, timeout: float = -1) -> Partitions:
        """As confluent-kafka's, by those of the present cluster."""
        return self._query(timeout, "looking offsets up", "offsets_for_times", partitions)

    def _query(self, timeout: float, doing: str, call: str, *given: Any, **named: Any) -> Any:
        """Query the present cluster; KafkaException: it is abandoned, the next poll leaves it."""
        member = self._open_member(timeout, doing)
        with named_errors(member.label(doing), member.needs):
            try:
                query = partial(getattr(member.native, call), *given, **named, timeout=timeout)
                return member.run(query)
            except GivenUpError as error:
                raise KafkaException(KafkaError(_STATE, str(error), retriable=True)) from error


def _flag(conf: Mapping[str, Any], name: str) -> bool:
    return str(conf.get(name, True)).lower() not in {"false", "0", "f"}


def check_count(num_messages: int) -> None:
    """Refuse a number of messages that confluent-kafka refuses, with its ValueError."""
    if not 0 <= num_messages <= _MOST_MESSAGES:
        raise ValueError("num_messages must be between 0 and 1000000 (1M)")


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
