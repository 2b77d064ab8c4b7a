"""Fetch version 11, of topics by name, where a single batch is wanted: any Kafka since 2.3.

The hot path fetches by topic id, see :mod:`srm.kafka.wire.frames`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any, Final

from aiokafka.protocol.fetch import FetchRequest_v11
from aiokafka.protocol.types import Array, Bytes, Int16, Int32, Int64, Schema, String

from srm.errors import SrmError, UnavailableError
from srm.kafka.wire.messages import message
from srm.replication.codes import OFFSET_OUT_OF_RANGE

_STRING: Final = String("utf-8")


class _NullIsEmpty(Array):
    """An array that brokers leave out where it does not apply."""

    def decode(self, data: BytesIO) -> list[Any]:
        """Read it; none is an empty one."""
        return super().decode(data) or []


_FETCHED: Final = Schema(
    ("throttle_time_ms", Int32),
    ("error_code", Int16),
    ("session_id", Int32),
    (
        "topics",
        Array(
            ("topic", _STRING),
            (
                "partitions",
                Array(
                    ("partition", Int32),
                    ("error_code", Int16),
                    ("high_watermark", Int64),
                    ("last_stable_offset", Int64),
                    ("log_start_offset", Int64),
                    (
                        "aborted_transactions",
                        _NullIsEmpty(("producer_id", Int64), ("first_offset", Int64)),
                    ),
                    ("preferred_read_replica", Int32),
                    ("records", Bytes),
                ),
            ),
        ),
    ),
)
_Fetch: Final = message(1, 11, FetchRequest_v11.SCHEMA, _FETCHED, flexible=False)
_CONSUMER: Final = -1
_READ_UNCOMMITTED: Final = 0
_READ_COMMITTED: Final = 1
_NO_SESSION: Final = (0, -1)


def fetch_one(
    topic: str, partition: int, offset: int, max_bytes: int, *, committed: bool = True
) -> Any:
    """Make a request for a partition's records from an offset on, one batch at least (KIP-74).

    It is answered at once, of an offset at the log's end with no records; ``committed``: up to the
    last stable offset only.
    """
    wanted = (partition, -1, offset, -1, max_bytes)
    isolation = _READ_COMMITTED if committed else _READ_UNCOMMITTED
    return _Fetch(
        *(_CONSUMER, 0, 0, max_bytes, isolation, *_NO_SESSION),
        [(topic, [wanted])],
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
