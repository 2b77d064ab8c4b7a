"""Finds aborted records in the logs of brokers, by the markers that end their transactions.

A leader's answer says which transactions were aborted, and is not to be relied on where the leader
was a follower before: of a fetch that held several transactions Kafka 4.3 notes for each the stable
offset at the end of them all, and leaves out those that it then takes for later than what is asked
for. A consumer reads them as committed. It needs two producers of one partition, one of which is
in a transaction where the fetch ends (docs/faults.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from srm.replication.batches.aborted import is_abort_marker
from srm.replication.batches.batch import BatchHeader, batches
from srm.replication.batches.rebuild import decode
from srm.stack.kafka import KafkaBroker
from srm.testing.logs import LoggedRecord

_CREATE_TIME, _LOG_APPEND_TIME = 1, 2


def replicated_aborts(
    brokers: Sequence[KafkaBroker], topic: str, partition: int
) -> dict[int, LoggedRecord]:
    """Return all aborted records, by offset, of a partition that brokers have from each other.

    What only one broker has, its leader has written itself, and knows what was aborted.
    """
    found: dict[int, LoggedRecord] = {}
    for broker in brokers if len(brokers) > 1 else ():
        folder = broker.home / "data" / f"{topic}-{partition}"
        for segment in sorted(folder.glob("*.log")):
            found |= aborted_records(batches(memoryview(segment.read_bytes())))
    return found


def aborted_records(log: Iterable[BatchHeader]) -> dict[int, LoggedRecord]:
    """Return the records of transactions that end with an abort marker, by offset."""
    found: dict[int, LoggedRecord] = {}
    under_way: dict[int, list[BatchHeader]] = {}
    for batch in log:
        if batch.is_control:
            ended = under_way.pop(batch.producer_id, [])
            for aborted in ended if is_abort_marker(batch) else ():
                found.update(_records(aborted))
        elif batch.is_transactional:
            under_way.setdefault(batch.producer_id, []).append(batch)
    return found


def _records(batch: BatchHeader) -> Iterable[tuple[int, LoggedRecord]]:
    kind = _LOG_APPEND_TIME if batch.has_log_append_time else _CREATE_TIME
    for record in decode(batch):
        headers = tuple((name, value) for name, value in record.headers)
        at = kind, record.timestamp
        yield record.offset, LoggedRecord(record.key, record.value, headers, at)
