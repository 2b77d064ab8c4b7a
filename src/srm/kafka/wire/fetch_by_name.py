"""Fetch version 11, of topics by name, where a single batch is wanted: any Kafka since 2.3.

The hot path fetches by topic id, see :mod:`srm.kafka.wire.frames`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from srm.domain.names.topics import TopicPartition
from srm.errors import SrmError, UnavailableError
from srm.kafka.wire.messages import (
    BYTES,
    CLASSIC,
    INT8,
    INT16,
    INT32,
    INT64,
    NUMBERS,
    TEXT,
    Message,
    Request,
    Structure,
    array,
)
from srm.replication.codes import OFFSET_OUT_OF_RANGE
from srm.replication.ports import Leader

_FETCHED: Final = Structure(
    throttle_time_ms=INT32,
    error_code=INT16,
    session_id=INT32,
    topics=array(
        topic=TEXT,
        partitions=array(
            partition=INT32,
            error_code=INT16,
            high_watermark=INT64,
            last_stable_offset=INT64,
            log_start_offset=INT64,
            aborted_transactions=array(producer_id=INT64, first_offset=INT64),
            preferred_read_replica=INT32,
            records=BYTES,
        ),
    ),
)
_WANTED: Final = array(
    partition=INT32,
    current_leader_epoch=INT32,
    offset=INT64,
    log_start_offset=INT64,
    max_bytes=INT32,
)
_FETCH: Final = Message(
    1,
    11,
    Structure(
        replica_id=INT32,
        max_wait_ms=INT32,
        min_bytes=INT32,
        max_bytes=INT32,
        isolation_level=INT8,
        session_id=INT32,
        session_epoch=INT32,
        topics=array(topic=TEXT, partitions=_WANTED),
        forgotten=array(topic=TEXT, partitions=NUMBERS),
        rack=TEXT,
    ),
    _FETCHED,
    CLASSIC,
)
_CONSUMER: Final = -1
_READ_UNCOMMITTED: Final = 0
_READ_COMMITTED: Final = 1
_NO_SESSION: Final = (0, -1)


def fetch_one(
    partition: TopicPartition,
    leader: Leader,
    offset: int,
    max_bytes: int,
    *,
    committed: bool = True,
) -> Request:
    """Make a request for a partition's records from an offset on, one batch at least (KIP-74).

    It is answered at once, of an offset at the log's end with no records; ``committed``: up to the
    last stable offset only.
    """
    wanted = (partition.partition, leader.epoch, offset, -1, max_bytes)
    isolation = _READ_COMMITTED if committed else _READ_UNCOMMITTED
    return _FETCH(
        *(_CONSUMER, 0, 0, max_bytes, isolation, *_NO_SESSION),
        [(partition.topic, [wanted])],
        [],
        "",
    )


def fetched_of(
    answer: Mapping[str, Any], where: str, error: Callable[[int], SrmError]
) -> Mapping[str, Any] | None:
    """Return what was fetched of the one partition, None where the log does not hold the offset.

    Args:
        answer: of a broker.
        where: what is done, for messages.
        error: makes one of a broker's error code.

    Raises:
        UnavailableError: a broker that holds the client up by a quota answers of no partition.
        SrmError: what ``error`` made.
    """
    if answer["error_code"]:
        raise error(answer["error_code"])
    if not answer["topics"]:
        raise UnavailableError(f"{where}: held up by a quota of the broker; retry")
    fetched: Mapping[str, Any] = answer["topics"][0]["partitions"][0]
    if fetched["error_code"] == OFFSET_OUT_OF_RANGE:
        return None
    if fetched["error_code"]:
        raise error(fetched["error_code"])
    return fetched
