"""Requests about transactions and their producers (KIP-664)."""

from __future__ import annotations

from typing import Final

from aiokafka.protocol.types import CompactArray, Int16, Int32, Int64

from srm.kafka.wire.messages import TEXT, Structure, array, message

_NAMES: Final = CompactArray(TEXT)
_NUMBERS: Final = CompactArray(Int32)
_TOPICS: Final = array(("topic", TEXT), ("partitions", _NUMBERS))

DESCRIBE_PRODUCERS: Final = message(
    61,
    0,
    Structure(("topics", _TOPICS)),
    Structure(
        ("throttle_time_ms", Int32),
        (
            "topics",
            array(
                ("topic", TEXT),
                (
                    "partitions",
                    array(
                        ("partition", Int32),
                        ("error_code", Int16),
                        ("error_message", TEXT),
                        (
                            "producers",
                            array(
                                ("producer_id", Int64),
                                ("producer_epoch", Int32),
                                ("last_sequence", Int32),
                                ("last_timestamp_ms", Int64),
                                ("coordinator_epoch", Int32),
                                ("first_offset", Int64),
                            ),
                        ),
                    ),
                ),
            ),
        ),
    ),
)
"""``first_offset`` is that of the producer's open transaction in the partition, -1 for none."""

LIST_TRANSACTIONS: Final = message(
    66,
    0,
    Structure(("states", _NAMES), ("producer_ids", CompactArray(Int64))),
    Structure(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        ("unknown_states", _NAMES),
        (
            "transactions",
            array(("transactional_id", TEXT), ("producer_id", Int64), ("state", TEXT)),
        ),
    ),
)

DESCRIBE_TRANSACTIONS: Final = message(
    65,
    0,
    Structure(("transactional_ids", _NAMES)),
    Structure(
        ("throttle_time_ms", Int32),
        (
            "transactions",
            array(
                ("error_code", Int16),
                ("transactional_id", TEXT),
                ("state", TEXT),
                ("timeout_ms", Int32),
                ("start_ms", Int64),
                ("producer_id", Int64),
                ("producer_epoch", Int16),
                ("topics", _TOPICS),
            ),
        ),
    ),
)
