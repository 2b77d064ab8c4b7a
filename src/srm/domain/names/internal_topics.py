"""Names of the compacted topics with all state of srm, and of those compatible with MM2.

What each holds, and what writes it, is in the table of ARCHITECTURE.md.

MM2 4.x takes few names for internal (KIP-1074). Two underscores in front are internal for every
version and with every separator, so no MM2 copies these topics and no MirrorClient lists them.
"""

from __future__ import annotations

from functools import reduce
from struct import iter_unpack
from typing import Final

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTIONS = "__transaction_state"
HEARTBEATS = "heartbeats"
LEDGER = "__srm-ledger"
ROUTING = "__srm-routing"
CLIENTS = "__srm-clients"
MOVES = "__srm-moves"
METRICS_WINDOWS = "__srm-metrics-windows"
SERVICES = "__srm-services"
# A name that ends with heartbeats is a heartbeats topic for an MM2 with the separator "-".

_CONNECT: Final = frozenset({"connect-configs", "connect-offsets", "connect-status"})
"""Topics of Connect workers, by their names in connect-distributed.properties."""


def partition_of(name: str, partitions: int) -> int:
    """Return the partition of Kafka's log whose leader coordinates a group or transactional id.

    Source: GroupCoordinator.partitionFor and that of transactions, with String.hashCode of Java.
    """
    chars = iter_unpack(">H", name.encode("utf-16-be"))
    code = reduce(lambda found, char: (31 * found + char[0]) % 2**32, chars, 0)
    return min(code, 2**32 - code) % partitions


def is_internal(topic: str, separator: str = ".") -> bool:
    """Return True for a topic with state of Kafka, MM2, Connect or srm, which is never replicated.

    The rule of MM2 4.x (a user's ``orders.internal`` is ordinary), Connect workers' names, and the
    dots in which MM2's own workers name their topics with any separator.
    """
    return (
        topic.startswith(("__", "."))
        or topic in _CONNECT
        or (topic.startswith("mm2") and topic.endswith((f"{separator}internal", ".internal")))
        or topic.endswith(f"{separator}checkpoints{separator}internal")
    )


def offset_syncs(other_alias: str, separator: str = ".") -> str:
    """Return the topic of MM2 offset syncs, named after the cluster that does not host it."""
    return f"mm2-offset-syncs{separator}{other_alias}{separator}internal"


def checkpoints(source_alias: str, separator: str = ".") -> str:
    return f"{source_alias}{separator}checkpoints{separator}internal"


def offset_map(source_alias: str) -> str:
    return f"__srm-offset-map.{source_alias}"


def replication(source_alias: str) -> str:
    return f"__srm-replication.{source_alias}"


def control(source_alias: str) -> str:
    return f"__srm-control.{source_alias}"


def raw_metrics(source_alias: str) -> str:
    return f"__srm-metrics.{source_alias}"


def verification(source_alias: str) -> str:
    return f"__srm-verification.{source_alias}"
