"""Ledger of the group offsets that srm has written on a cluster: reading it, and its cleaning."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from srm.domain.groups.group_sync import GroupLedger, LedgerEntry, all_entries
from srm.domain.names import internal_topics
from srm.domain.names.topics import TopicPartition
from srm.engine.cluster_ports import Cluster, Topics
from srm.errors import AuthorizationError

_DAY_MS: Final = 86_400_000


def read_ledger(cluster: Cluster, topics: Topics) -> GroupLedger:
    """Read the ledger of srm's own group offsets on a cluster; ``topics`` are read before."""
    ids = {name: topic.topic_id for name, topic in topics.items()}
    rows = cluster.compacted_topic(internal_topics.LEDGER).read_stamped()
    return GroupLedger({key: (row.value, row.timestamp_ms) for key, row in rows.items()}, ids)


def drop_entries(cluster: Cluster, chosen: Callable[[LedgerEntry], bool]) -> None:
    table = cluster.compacted_topic(internal_topics.LEDGER)
    ended = [entry.key() for entry in all_entries(table.read()) if chosen(entry)]
    if ended:
        table.write(dict.fromkeys(ended))


def forget_entries(cluster: Cluster, gone: Collection[str], now_ms: int) -> None:
    """Delete the entries in topics with these ids, and in all deleted topics.

    Some of those no flow copies any more. Other entries must be a day old: a broker may not know a
    new topic yet.
    """
    table = cluster.compacted_topic(internal_topics.LEDGER)
    rows = table.read_stamped()
    topics = cluster.topics()  # after the entries in these topics
    present = {one.topic_id for one in topics.values()}
    old = {key for key, row in rows.items() if row.timestamp_ms < now_ms - _DAY_MS}
    lacking = {
        entry.key(): entry.topic_partition.topic
        for entry in all_entries({key: row.value for key, row in rows.items()})
        if entry.topic_id in gone or (entry.topic_id not in present and entry.key() in old)
    }
    hidden = {name for name in {*lacking.values()} - topics.keys() if is_hidden(cluster, name)}
    now = table.read() if lacking else {}  # that took a while: another run may have written since
    ended = [
        key
        for key, name in lacking.items()
        if name not in hidden and key in now and now[key] == rows[key].value
    ]
    if ended:
        table.write(dict.fromkeys(ended))


def is_hidden(cluster: Cluster, topic: str) -> bool:
    try:
        cluster.log_starts([TopicPartition(topic, 0)])
    except AuthorizationError:
        return True
    return False
