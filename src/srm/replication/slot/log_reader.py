"""Reading one partition on its own, for the resume walk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from srm.domain.topics import TopicPartition
from srm.errors import AuthorizationError, DataLossError, UnavailableError
from srm.replication import codes
from srm.replication.ports import FetchedPartition, FetchFrom, Wire

FETCH_BYTES: Final = 4 << 20
WAIT_MS: Final = 50


class OutOfRangeError(DataLossError):
    """The log does not hold an offset."""

    def __init__(
        self, partition: TopicPartition, offset: int, log_start: int, log_end: int
    ) -> None:
        super().__init__(
            f"{partition}: offset {offset} is not in the log, which holds {log_start} to {log_end}"
        )
        self.log_start = log_start
        self.log_end = log_end


@dataclass(frozen=True, slots=True)
class LogReader:
    """Reads one partition of one cluster, by topic id."""

    wire: Wire
    partition: TopicPartition
    topic_id: bytes
    read_committed: bool

    async def fetch(
        self, offset: int, max_bytes: int = FETCH_BYTES, wait_ms: int = WAIT_MS
    ) -> FetchedPartition:
        """Fetch from an offset; the first batch comes whole, whatever ``max_bytes`` says.

        Where nothing stands there the broker waits for so long, and with it all that was sent to it
        after this: whoever asks for the end of a log does not let it wait.

        Raises:
            OutOfRangeError: the log does not hold the offset.
            UnavailableError: the leader does not answer, or has moved.
            AuthorizationError: the right to read the topic is missing.
        """
        node = await self.wire.leader(self.partition)
        fetched = await self.wire.fetch(
            node,
            [FetchFrom(self.topic_id, self.partition.partition, offset, max_bytes)],
            max_wait_ms=wait_ms,
            max_bytes=max_bytes,
            read_committed=self.read_committed,
        )
        error = fetched.error or fetched.partitions[0].error
        if error == codes.OFFSET_OUT_OF_RANGE:
            start, end = await self.wire.log_range(self.partition)
            raise OutOfRangeError(self.partition, offset, start, end)
        if error == codes.TOPIC_RIGHT_MISSING:
            topic, cluster = self.partition.topic, self.wire.alias
            raise AuthorizationError(codes.missing_right("Read", topic, cluster))
        if error:
            self.wire.leaders_changed()
            raise UnavailableError(f"{self.partition}: fetch was answered with error {error}")
        return fetched.partitions[0]
