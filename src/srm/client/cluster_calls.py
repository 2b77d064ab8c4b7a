"""Consumer calls that are passed unchanged to the present cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from confluent_kafka import TopicPartition

from srm.client.errors import named_errors
from srm.client.group_follower import GroupFollower
from srm.client.routing.membership import Membership
from srm.errors import UsageError


class GroupMetadata:
    """Group metadata for ``send_offsets_to_transaction``, of one stay on one cluster."""

    def __init__(self, membership: Membership) -> None:
        self.cluster = membership.cluster
        self.native = membership.native.consumer_group_metadata()
        self._membership = membership

    def covers(self, offsets: Sequence[TopicPartition]) -> bool:
        """Return whether these offsets were read in that stay."""
        return self._membership.has_handed_over(offsets)


class ClusterCalls(GroupFollower):
    """Calls of confluent-kafka's consumer, made on the cluster the group is on.

    Offsets are those of that cluster. A held group has no assignment. A call that needs a cluster
    waits for the end of the hold within its timeout, else raises KafkaException (``_STATE``).
    """

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
