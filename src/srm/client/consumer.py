"""A consumer that follows its group from cluster to cluster.

Its group's route decides: on *go* it reads on the route's cluster, on *hold* it commits what the
application has finished, leaves the group and waits. On every cluster it reads the topics
themselves and their copies from the other clusters, so it sees every record wherever it is.

A message counts as **processed** when the application asks for the next one, or calls
:meth:`FailoverConsumer.done`. Only processed messages are committed.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, KafkaException

from srm.client.routing import RoutingWatcher, default_client_id, now_ms
from srm.config.model import Config
from srm.domain.move.routes import Ack, Route, group_subject
from srm.domain.topics import Flow
from srm.errors import ConflictError, UsageError
from srm.kafka.clients import ClientLog
from srm.kafka.errors import kafka_errors, translate

log = logging.getLogger(__name__)

_SLICE_S = 0.1
_COMMIT_DEADLINE_S = 30.0
_COMMITTED_TIMEOUT_S = 10.0

# A group whose topic does not exist yet, or no more: read when it comes.
_PASSING = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 -- librdkafka's local codes are named so
    KafkaError._PARTITION_EOF,  # noqa: SLF001
}
# Commits that fail so will never succeed: the group has given our partitions to somebody else.
_LOST = {
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.FENCED_MEMBER_EPOCH,
    KafkaError.STALE_MEMBER_EPOCH,
    KafkaError._ASSIGNMENT_LOST,  # noqa: SLF001
}


class FailoverConsumer:
    """Member of a consumer group that moves with it; for one thread.

    Args:
        config: the clusters and how topics are named across them.
        group: consumer group.
        topics: original names, e.g. ``Payments``; copies are read as well.
        home: cluster to start on while no route is set; the first in ``clusters`` by default.
        properties: librdkafka consumer properties on top of those in the configuration;
            ``auto.offset.reset`` is ``earliest`` unless given.
        client_id: shown by the brokers; unique by default.
        watcher: a watcher shared with other clients, started or not; not closed by this one.

    Raises:
        UsageError: a property would break what this class promises.
    """

    def __init__(
        self,
        config: Config,
        group: str,
        topics: Sequence[str],
        *,
        home: str | None = None,
        properties: Mapping[str, str] | None = None,
        client_id: str | None = None,
        watcher: RoutingWatcher | None = None,
    ) -> None:
        self._properties = dict(properties or {})
        if "group.instance.id" in self._properties:
            raise UsageError(
                "group.instance.id keeps a consumer in its group after it has left, so the group "
                "could not move: remove it"
            )
        if not topics:
            raise UsageError(f"consumer of group {group!r} has no topics")
        self.group = group
        self.topics = tuple(topics)
        self.client_id = client_id or default_client_id("consumer")
        self._config = config
        self._watcher = watcher or RoutingWatcher(config, home)
        self._owns_watcher = watcher is None
        self._subject = group_subject(group)
        self._followed: Route | None = None
        self._consumer: Any = None
        self._cluster = ""
        self._reported = -1
        self._current: Any = None
        self._pending: deque[Any] = deque()
        self._started = False
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
        """Yield messages for ever, across moves, until :meth:`close` is called."""
        while not self._closed:
            message = self.poll(1.0)
            if message is not None:
                yield message

    @property
    def cluster(self) -> str | None:
        """Alias of the cluster it reads on, None while it is held or not started."""
        return self._cluster if self._consumer is not None else None

    def poll(self, timeout: float = 1.0) -> Any:
        """Return the next message, None when there is none in time or the group is held.

        The message before counts as processed.

        Raises:
            SrmError: the cluster refuses the read or the commit.
        """
        self._start()
        self._finish_current()
        deadline = time.monotonic() + timeout
        while True:
            route = self._watcher.route(self._subject)
            if route != self._followed:
                self._follow(route)
            left = max(0.0, deadline - time.monotonic())
            if self._consumer is None:
                self._watcher.wait_change(self._subject, route, left)
            else:
                message = self._next(min(left, _SLICE_S))
                if message is not None:
                    self._current = message
                    return message
            if time.monotonic() >= deadline and self._watcher.route(self._subject) == route:
                return None

    def done(self, message: Any) -> None:
        """Count a message, and all before it in its partition, as processed now."""
        if message is self._current:
            self._current = None
        if self._consumer is None:
            return
        try:
            self._consumer.store_offsets(message=message)
        except KafkaException as error:
            if error.args[0].code() not in {KafkaError._STATE, *_LOST}:  # noqa: SLF001
                raise translate(error, self._where("storing an offset")) from error
            log.warning(
                "group %s: %s-%d was taken from this member while it worked on offset %d",
                self.group,
                message.topic(),
                message.partition(),
                message.offset(),
            )

    def commit(self) -> None:
        """Commit everything processed, and wait for it.

        Raises:
            SrmError: the commit failed.
        """
        if self._consumer is not None:
            self._commit()

    def close(self) -> None:
        """Commit what is processed and leave the group; the last message polled is not processed.

        Call :meth:`done` before, when breaking out of a loop after the message was worked on.
        """
        if self._closed:
            return
        self._closed = True
        try:
            if self._consumer is not None:
                self._leave()
        finally:
            if self._owns_watcher:
                self._watcher.close()

    def _start(self) -> None:
        if self._closed:
            raise ConflictError(f"consumer of group {self.group!r} is closed")
        if not self._started:
            self._watcher.start()
            self._started = True

    def _finish_current(self) -> None:
        if self._current is not None:
            self.done(self._current)

    def _follow(self, route: Route) -> None:
        """Do what the route says; it counts as followed only when everything of it is done."""
        if self._consumer is not None and (route.state == "hold" or route.cluster != self._cluster):
            self._leave()
        if route.state == "hold":
            log.info("group %s: held, left %s", self.group, route.cluster)
            self._acknowledge(route, "held", {})
        elif self._consumer is None:
            self._open(route)
        self._followed = route

    def _open(self, route: Route) -> None:
        properties = {
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": "1000",
            # Copies of topics come into being while consumers run.
            "topic.metadata.refresh.interval.ms": "5000",
            **self._config.client(route.cluster, "consumer"),
            **self._properties,
            "group.id": self.group,
            "client.id": self.client_id,
            "enable.auto.commit": "true",
            "enable.auto.offset.store": "false",
            "allow.auto.create.topics": "false",
        }
        names = self._names_on(route.cluster)
        self._cluster = route.cluster
        with kafka_errors(self._where("subscribing")):
            consumer = Consumer(properties, logger=ClientLog())
            consumer.subscribe(names, on_assign=self._assigned, on_revoke=self._revoked)
        self._consumer = consumer
        log.info("group %s: reads %s on %s", self.group, ", ".join(names), route.cluster)

    def _names_on(self, cluster: str) -> list[str]:
        """Name the topics as they are called on a cluster: themselves and their copies there."""
        names = list(self.topics)
        for other in self._config.clusters:
            if other != cluster:
                policy = self._config.flow(Flow(other, cluster)).policy
                names += [policy.format_remote_topic(other, topic) for topic in self.topics]
        return names

    def _leave(self) -> None:
        """Commit what is processed, then leave the group.

        Raises:
            SrmError: the commit failed; the member stays, so that nothing is lost silently.
        """
        self._commit()
        consumer, self._consumer = self._consumer, None
        self._current = None
        self._pending.clear()
        with kafka_errors(self._where("leaving")):
            consumer.close()

    def _commit(self) -> None:
        deadline = time.monotonic() + _COMMIT_DEADLINE_S
        while True:
            try:
                self._commit_once()
            except KafkaException as error:
                failure = error.args[0]
                if failure.code() in _LOST:
                    log.warning(
                        "group %s: this member was out of its group, what it processed last is "
                        "read again: %s",
                        self.group,
                        failure,
                    )
                    return
                passing = failure.retriable() or (
                    failure.code() == KafkaError.REBALANCE_IN_PROGRESS
                )
                if not passing or time.monotonic() > deadline:
                    raise translate(error, self._where("committing")) from error
                # Polling lets the rebalance go on; what comes meanwhile is delivered later.
                message = self._consumer.poll(_SLICE_S)
                if self._is_record(message):
                    self._pending.append(message)
            else:
                return

    def _commit_once(self) -> None:
        try:
            results = self._consumer.commit(asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() == KafkaError._NO_OFFSET:  # noqa: SLF001 -- nothing to commit
                return
            raise
        for result in results or ():
            if result.error is not None:
                raise KafkaException(result.error)

    def _next(self, timeout_s: float) -> Any:
        if self._pending:
            return self._pending.popleft()
        message = self._consumer.poll(timeout_s)
        return message if self._is_record(message) else None

    def _assigned(self, consumer: Any, partitions: list[Any]) -> None:
        route = self._watcher.route(self._subject)
        if self._reported == route.generation or route.state == "hold":
            return
        self._reported = route.generation
        positions = {}
        try:
            for found in consumer.committed(partitions, timeout=_COMMITTED_TIMEOUT_S):
                if found.offset >= 0:
                    positions[f"{found.topic}-{found.partition}"] = found.offset
        except KafkaException as error:
            log.warning("group %s: start offsets are not known: %s", self.group, error)
        self._acknowledge(route, "resumed", positions)

    def _revoked(self, _consumer: Any, partitions: list[Any]) -> None:
        """Commit before others take over; runs inside poll, so no message is being worked on."""
        if self._consumer is None:
            return
        lost = {(one.topic, one.partition) for one in partitions}
        kept = [m for m in self._pending if (m.topic(), m.partition()) not in lost]
        self._pending = deque(kept)
        try:
            self._commit_once()
        except KafkaException as error:
            log.warning("group %s: commit at revocation failed: %s", self.group, error)

    def _acknowledge(self, route: Route, state: Any, positions: Mapping[str, int]) -> None:
        if route.generation:
            self._watcher.acknowledge(
                Ack(
                    self._subject,
                    self.client_id,
                    route.generation,
                    state,
                    route.cluster,
                    now_ms(),
                    positions,
                )
            )

    def _is_record(self, message: Any) -> bool:
        if message is None:
            return False
        error = message.error()
        if error is None:
            return True
        if error.code() not in _PASSING and not error.retriable():
            raise translate(error, self._where("reading"))
        log.debug("group %s on %s: %s", self.group, self._cluster, error)
        return False

    def _where(self, doing: str) -> str:
        return f"{doing} as group {self.group!r} on cluster {self._cluster}"
