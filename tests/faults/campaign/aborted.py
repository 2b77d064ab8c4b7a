"""Finds aborted records in the logs of brokers, by the markers that end their transactions.

A leader's answer says which transactions were aborted, and is not to be relied on where the leader
was a follower before: of a fetch that held several transactions Kafka 4.3 notes for each the stable
offset at the end of them all, and leaves out those that it then takes for later than what is asked
for. A consumer reads them as committed. It needs two producers of one partition, one of which is
in a transaction where the fetch ends (docs/testing.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME

from srm.replication.batches.batch import BatchHeader, batches, is_abort_marker
from srm.replication.batches.records import decode
from srm_lab.stack.kafka import KafkaBroker
from srm_lab.testing.logs import LoggedRecord


def replicated_aborts(
    brokers: Sequence[KafkaBroker], topic: str, partition: int
) -> dict[int, LoggedRecord]:
    """Return all aborted records, by offset, of a partition that brokers have from each other.

    What only one broker has, its leader has written itself, and knows what was aborted.
    """
    found: dict[int, LoggedRecord] = {}
    for broker in brokers if len(brokers) > 1 else ():
        for aborted in _aborted(_log(broker, topic, partition)):
            found.update(_records(aborted))
    return found


def _log(broker: KafkaBroker, topic: str, partition: int) -> Iterator[BatchHeader]:
    folder = broker.home / "data" / f"{topic}-{partition}"
    for segment in sorted(folder.glob("*.log")):
        yield from batches(memoryview(segment.read_bytes()))


def _aborted(log: Iterable[BatchHeader]) -> Iterator[BatchHeader]:
    """Yield the batches of transactions that end with an abort marker."""
    under_way: dict[int, list[BatchHeader]] = {}
    for batch in log:
        if batch.is_control:
            ended = under_way.pop(batch.producer_id, [])
            if is_abort_marker(batch):
                yield from ended
        elif batch.is_transactional:
            under_way.setdefault(batch.producer_id, []).append(batch)


def _records(batch: BatchHeader) -> Iterator[tuple[int, LoggedRecord]]:
    kind = TIMESTAMP_LOG_APPEND_TIME if batch.has_log_append_time else TIMESTAMP_CREATE_TIME
    for record in decode(batch):
        headers = tuple((name, value) for name, value in record.headers)
        time = kind, record.timestamp
        yield record.offset, LoggedRecord(record.key, record.value, headers, time)
