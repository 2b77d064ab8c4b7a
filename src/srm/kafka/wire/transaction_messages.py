"""Requests about transactions and their producers (KIP-98, KIP-664)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from srm.kafka.wire.messages import (
    BOOLEAN,
    CLASSIC,
    INT16,
    INT32,
    INT64,
    NAMES,
    NUMBERS,
    TEXT,
    Array,
    FieldType,
    Message,
    Structure,
    array,
)

_TOPICS: Final = array(topic=TEXT, partitions=NUMBERS)

DESCRIBE_PRODUCERS: Final = Message(
    61,
    0,
    Structure(topics=_TOPICS),
    Structure(
        throttle_time_ms=INT32,
        topics=array(
            topic=TEXT,
            partitions=array(
                partition=INT32,
                error_code=INT16,
                error_message=TEXT,
                producers=array(
                    producer_id=INT64,
                    producer_epoch=INT32,
                    last_sequence=INT32,
                    last_timestamp_ms=INT64,
                    coordinator_epoch=INT32,
                    first_offset=INT64,
                ),
            ),
        ),
    ),
)
"""``first_offset`` is that of the producer's open transaction in the partition, -1 for none."""

LIST_TRANSACTIONS: Final = Message(
    66,
    0,
    Structure(states=NAMES, producer_ids=Array(INT64)),
    Structure(
        throttle_time_ms=INT32,
        error_code=INT16,
        unknown_states=NAMES,
        transactions=array(transactional_id=TEXT, producer_id=INT64, state=TEXT),
    ),
)

DESCRIBE_TRANSACTIONS: Final = Message(
    65,
    0,
    Structure(transactional_ids=NAMES),
    Structure(
        throttle_time_ms=INT32,
        transactions=array(
            error_code=INT16,
            transactional_id=TEXT,
            state=TEXT,
            timeout_ms=INT32,
            start_ms=INT64,
            producer_id=INT64,
            producer_epoch=INT16,
            topics=_TOPICS,
        ),
    ),
)

INIT_PRODUCER_ID: Final = Message(
    22,
    0,
    Structure(transactional_id=TEXT, transaction_timeout_ms=INT32),
    Structure(throttle_time_ms=INT32, error_code=INT16, producer_id=INT64, producer_epoch=INT16),
    CLASSIC,
)

_PRODUCER: Final[Mapping[str, FieldType]] = {
    "transactional_id": TEXT,
    "producer_id": INT64,
    "producer_epoch": INT16,
}

ADD_PARTITIONS: Final = Message(
    24,
    0,
    Structure(**_PRODUCER, topics=_TOPICS),
    Structure(
        throttle_time_ms=INT32,
        topics=array(topic=TEXT, partitions=array(partition=INT32, error_code=INT16)),
    ),
    CLASSIC,
)

END_TRANSACTION: Final = Message(
    26,
    0,
    Structure(**_PRODUCER, committed=BOOLEAN),
    Structure(throttle_time_ms=INT32, error_code=INT16),
    CLASSIC,
)
