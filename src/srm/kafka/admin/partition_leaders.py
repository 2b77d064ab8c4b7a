"""Leaders of partitions for a request that is sent once (KIP-320)."""

from __future__ import annotations

from collections.abc import Callable, Collection

from srm.domain.names.topics import TopicPartition
from srm.errors import SrmError
from srm.kafka.admin.topics import UNKNOWN_TOPIC_CODES
from srm.kafka.wire.brokers import Brokers
from srm.replication.ports import Leader


async def find_leaders(
    brokers: Brokers,
    partitions: Collection[TopicPartition],
    error: Callable[[str, int], SrmError],
) -> dict[TopicPartition, Leader]:
    """Return the leaders of the partitions that exist.

    Args:
        brokers: of the cluster.
        partitions: the partitions, in any order.
        error: makes the error of a broker's code for a topic.

    Raises:
        SrmError: made by ``error``: srm may not describe a topic, or a partition has no leader.
    """
    wanted = set(partitions)
    leaders: dict[TopicPartition, Leader] = {}
    metadata = await brokers.look({partition.topic for partition in wanted})
    for topic in metadata["topics"]:
        name, code = topic["topic"], topic["error_code"]
        if code and code not in UNKNOWN_TOPIC_CODES:
            raise error(name, code)
        for found in topic["partitions"]:
            partition = TopicPartition(name, found["partition"])
            if partition not in wanted:
                continue
            if found["leader"] < 0:
                raise error(name, found["error_code"])
            leaders[partition] = Leader(found["leader"], found["leader_epoch"])
    return leaders
