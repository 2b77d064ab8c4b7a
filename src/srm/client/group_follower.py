"""A consumer on its group's cluster: opening, leaving, rebalances, and calls that are passed on."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from srm.client.errors import ClosedError, named_errors
from srm.client.routing.client_heartbeat import Announcer
from srm.client.routing.following import is_given_up, next_step
from srm.client.routing.membership import Membership, subscription
from srm.client.routing.messages import FailoverMessage
from srm.client.routing.routing import RoutingWatcher
from srm.client.settings import ClientSettings
from srm.domain.moves.routing import Route, group_subject
from srm.domain.names.topics import Flow
from srm.errors import GivenUpError, UsageError
from srm.kafka.admin.clients import ClientLog

log = logging.getLogger(__name__)

RebalanceCallback = Callable[[Any, list[TopicPartition]], None]

SLICE_S: Final = 0.1
"""Seconds after which a waiting consumer checks its route."""

_SERVED: Final = ("error_cb", "stats_cb", "throttle_cb")

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


class GroupFollower:
    """A member of a group on the group's present cluster, or on none while it is held."""

    def __init__(
        self,
        settings: ClientSettings,
        group: str,
        client_id: str,
        watcher: RoutingWatcher,
        logger: Any,
    ) -> None:
        self.group = group
        self.client_id = client_id
        self._settings = settings
        self._logger = logger or ClientLog()
        self._watcher = watcher
        self._announcer = Announcer(watcher, client_id, "consumer")
        self._subject = group_subject(group)
        self._commits = True
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
        self._closed = False

    @property
    def cluster(self) -> str | None:
        """Alias of the cluster it reads from, None while it is held or not started."""
        return self._member.cluster if self._member is not None else None

    def follow(self) -> None:
        """Follow a hold now, between two calls; messages in hand do not count as processed.

        For the consumer's thread, before it waits in another client for the end of a hold. A group
        whose member waits cannot move.

        Raises:
            KafkaException: the commit failed.
        """
        if self._inside or self._closed or self._member is None:
            return
        route = self._watcher.route(self._subject)
        if next_step(self._member.cluster, route) == "leave":
            self._follow(route)

    def _follow(self, route: Route) -> None:
        """Follow a route; it counts as followed only after its last step."""
        member = self._member
        if member is not None and next_step(member.cluster, route) == "leave":
            if is_given_up(member.cluster, self._followed, route):
                self._abandon(member)
            else:
                self._leave(member)
        step = next_step(self.cluster, route)
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
        where = f"opening a consumer of group {self.group!r} on cluster {route.cluster}"
        with named_errors(where):
            native = Consumer(self._properties(route.cluster), logger=self._logger)
        self._epoch += 1
        cluster = route.cluster
        self._member = Membership(
            native,
            cluster,
            self._epoch,
            self.group,
            commits=self._commits,
            is_given_up=lambda: self._is_given_up(cluster),
        )
        if self._topics is not None:
            self._subscribe(self._member)
        if route.generation == 0 or self._epoch == 1:
            self._announcer.reach(self._subject, route, "resumed")

    def _properties(self, cluster: str) -> dict[str, Any]:
        """Return the properties of the next stay; its callbacks do nothing after it."""
        properties, epoch = self._settings.on(cluster), self._epoch + 1
        for name in _SERVED:
            if callable(callback := properties.get(name)):
                properties[name] = partial(self._serve, epoch, callback)
        properties["on_commit"] = partial(self._on_commit, epoch, properties.get("on_commit"))
        return properties

    def _is_given_up(self, cluster: str) -> bool:
        return is_given_up(cluster, self._followed, self._watcher.route(self._subject))

    def _subscribe(self, member: Membership) -> None:
        names = subscription(self._topics or (), member.cluster, self._remote_names(member.cluster))
        with named_errors(member.where("subscribing")):
            member.native.subscribe(
                names,
                on_assign=partial(self._on_assign, member),
                on_revoke=partial(self._on_revoke, member),
                on_lost=partial(self._lost, member),
            )
        log.info("group %s: reads %s on %s", self.group, ", ".join(names), member.cluster)

    def _remote_names(self, cluster: str) -> dict[str, Callable[[str], str]]:
        return {
            other: self._settings.config.flow(Flow(other, cluster)).names.remote
            for other in self._settings.config.clusters
            if other != cluster
        }

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

    def _leave(self, member: Membership) -> None:
        """Commit what is processed, then leave; after a KafkaException the member is kept."""
        self._announcer.forget_losses(self._subject)
        self._leaving = True
        try:
            if self._commits and not member.commit_processed():
                self._announcer.lose(self._subject, member.count_uncommitted(member.assignment))
            with named_errors(member.where("leaving"), member.needs):
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
        log.warning(
            "group %s: %s is abandoned, left at once; records processed whose commit is unknown, "
            "which may be read again: %s",
            self.group,
            member.cluster,
            ", ".join(f"{count} of {name}" for name, count in sorted(lost.items())) or "nothing",
        )
        self._member = None
        self._current = []
        self._abandoned = [*(other for other in self._abandoned if not other.is_over), member]
        member.abandon()

    # ----- callbacks, run within poll, consume and close; those of a member that has left may run
    # in a background thread and have no effect

    def _on_assign(
        self, member: Membership, _native: Any, partitions: list[TopicPartition]
    ) -> None:
        if member is self._member:
            member.gain(partitions)
            with member.rebalancing():
                self._call("on_assign", partitions)

    def _on_revoke(
        self, member: Membership, _native: Any, partitions: list[TopicPartition]
    ) -> None:
        """Commit before other members take over; inside poll, so no message is in processing."""
        if member is not self._member:
            return
        try:
            with member.rebalancing():
                self._call("on_revoke", partitions)
                if self._commits:
                    member.commit_once()
                elif self._leaving:
                    self._announcer.lose(self._subject, member.count_uncommitted(partitions))
        except KafkaException as error:
            member.warn("committing at a rebalance", error)
            member.lose_unsure(partitions)
        member.lose(partitions)

    def _lost(self, member: Membership, _native: Any, partitions: list[TopicPartition]) -> None:
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

    def _on_commit(
        self, epoch: int, callback: Any, error: Any, offsets: list[TopicPartition]
    ) -> None:
        if self._member is not None and self._member.epoch == epoch:
            if error is None:
                self._member.confirm(offsets)
            if callback is not None:
                callback(error, offsets)

    def _call_lost(self, partitions: list[TopicPartition]) -> None:
        self._call("on_lost" if self._callbacks.get("on_lost") else "on_revoke", partitions)

    def _call(self, name: str, partitions: list[TopicPartition]) -> None:
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
        if self._closed and not (leaving and self._leaving):
            raise ClosedError("Consumer closed")

    # ----- confluent-kafka's calls, with offsets of the present cluster; a held group has no
    # assignment, and a call that needs a cluster waits for the end of the hold within its timeout

    def committed(
        self, partitions: list[TopicPartition], timeout: float = -1
    ) -> list[TopicPartition]:
        """Return committed offsets on the present cluster."""
        member = self._open_member(timeout, "reading committed offsets")
        with named_errors(member.where("reading committed offsets"), member.needs):
            return member.native.committed(partitions, timeout=timeout)

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return the offsets after the last messages; without offsets while held."""
        self._check_open()
        if self._member is None:
            return [TopicPartition(one.topic, one.partition) for one in partitions]
        return self._member.native.position(partitions)

    def assignment(self) -> list[TopicPartition]:
        """Return the assigned partitions; none while held."""
        self._check_open()
        return [] if self._member is None else self._member.native.assignment()

    def pause(self, partitions: list[TopicPartition]) -> None:
        """Pause partitions until the next move or assignment; no effect while held."""
        self._check_open()
        if self._member is not None:
            self._member.native.pause(partitions)

    def resume(self, partitions: list[TopicPartition]) -> None:
        """Resume paused partitions; no effect while held."""
        self._check_open()
        if self._member is not None:
            self._member.native.resume(partitions)

    def seek(self, partition: TopicPartition) -> None:
        """Seek to an offset; messages of the partition in hand do not count as processed.

        Raises:
            KafkaException: the partition is not assigned, or the group is held.
        """
        member = self._open_member(0.0, "seeking")
        member.native.seek(partition)
        place = (partition.topic, partition.partition)
        member.rewind(place)
        self._current = [m for m in self._current if (m.topic(), m.partition()) != place]

    def consumer_group_metadata(self) -> Any:
        """Return the metadata for :meth:`FailoverProducer.send_offsets_to_transaction`."""
        return GroupMetadata(self._open_member(0.0, "reading group metadata"))

    def memberid(self) -> str | None:
        """Return the member id from the coordinator, None while held."""
        self._check_open()
        return None if self._member is None else self._member.native.memberid()

    # ----- calls allowed in a rebalance callback

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Assign partitions, in ``on_assign`` only: a consumer that moves subscribes."""
        self._in_callback("assign").assign(partitions)

    def unassign(self) -> None:
        """Release all partitions, in ``on_revoke`` and ``on_lost`` only."""
        self._in_callback("unassign").unassign()

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Assign more partitions, in ``on_assign`` only."""
        self._in_callback("incremental_assign").incremental_assign(partitions)

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Release some partitions, in ``on_revoke`` and ``on_lost`` only."""
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
        """Return the topics of the present cluster."""
        native = self._open_member(timeout, "listing topics").native
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
        """Return a partition's low and high watermark on the present cluster."""
        native = self._open_member(timeout, "reading watermarks").native
        return native.get_watermark_offsets(partition, timeout=timeout, cached=cached)

    def offsets_for_times(
        self, partitions: list[TopicPartition], timeout: float = -1
    ) -> list[TopicPartition]:
        """Return offsets by timestamp on the present cluster."""
        native = self._open_member(timeout, "looking offsets up").native
        return native.offsets_for_times(partitions, timeout=timeout)
