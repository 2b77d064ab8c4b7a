"""Read from both clusters what a move decides on: one look, in an order that misleads nobody."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from srm.domain.move.presence import Writer
from srm.domain.move.request import MoveRequest
from srm.domain.topics import TopicPartition
from srm.domain.transactions import OpenTransaction
from srm.domain.translation import Direction
from srm.engine.checkpoints import per_group, read_ledger
from srm.engine.move.facts import ClusterFacts, MoveFacts, TopicPair, topic_pairs
from srm.engine.move.routes import RoutingTables
from srm.engine.move.store import MoveContext
from srm.engine.partition_facts import Starts, WantedMaps, logs_of, starts_of
from srm.engine.ports import Cluster, FlowMaps, TopicDescription
from srm.errors import AuthorizationError

log = logging.getLogger(__name__)


def partitions(
    topics: Mapping[str, TopicDescription], names: Collection[str]
) -> list[TopicPartition]:
    """List all partitions of the named topics that exist."""
    return [
        TopicPartition(name, number)
        for name in names
        if name in topics
        for number in range(topics[name].partitions)
    ]


def read_facts(
    context: MoveContext, request: MoveRequest, topics: tuple[str, ...], groups: Collection[str]
) -> MoveFacts:
    """Take one look at both clusters.

    The order matters. Members before commits: a group seen without members commits no more. Maps
    before logs: what is written in between counts as not copied, never the other way round. A group
    that may not be read has its own error, and the others are read all the same.

    Raises:
        SrmError: a cluster does not answer.
    """
    source, target = context.source, context.target
    pairs = topic_pairs(context, topics)
    source_groups, target_groups = source.groups(groups), target.groups(groups)
    source_topics, target_topics = source.topics(), target.topics()
    upstream = partitions(source_topics, [pair.topic for pair in pairs])
    downstream = partitions(target_topics, [pair.target_topic for pair in pairs])
    # Undecided before decided: what is decided in between is in the committed offsets.
    pending, unseen = per_group(groups, lambda group: source.pending_commits(group, upstream))
    committed, unread = per_group(groups, source.committed)
    target_committed, target_unread = per_group(groups, target.committed)
    # What clients say before what they have written: who has said it is held wrote all before that.
    routing = RoutingTables.read(context)
    starts, target_starts = starts_of(source, upstream), starts_of(target, downstream)
    maps_ms = context.now_ms()
    maps, reverse_maps = _maps(context, pairs, starts, target_starts, committed, target_committed)
    logs = logs_of(source, upstream, starts)
    originals = [tp for tp in upstream if tp.topic in topics and tp in logs]
    held_back = [tp for tp in originals if logs[tp].stable_end < logs[tp].end]
    transactions, hidden = _open_transactions(source, held_back)
    return MoveFacts(
        request=request,
        topics=topics,
        groups=tuple(sorted(groups)),
        pairs=pairs,
        source=ClusterFacts(
            source.alias,
            source_topics,
            source_groups,
            committed,
            {**unseen, **unread},
            logs,
            pending,
        ),
        target=ClusterFacts(
            target.alias,
            target_topics,
            target_groups,
            target_committed,
            target_unread,
            logs_of(target, downstream, target_starts),
        ),
        transactions=transactions,
        hidden=hidden,
        ledger=read_ledger(context.target, target_topics),
        maps=maps,
        maps_ms=maps_ms,
        reverse_maps=reverse_maps,
        routing=routing,
        writers=read_writers(source, originals),
    )


def _maps(
    context: MoveContext,
    pairs: Collection[TopicPair],
    starts: Starts,
    target_starts: Starts,
    committed: Mapping[str, Mapping[TopicPartition, int]],
    target_committed: Mapping[str, Mapping[TopicPartition, int]],
) -> tuple[FlowMaps, FlowMaps]:
    """Load both maps around what the groups have committed on both sides, and around log starts."""
    wanted: dict[Direction, WantedMaps] = {"forward": WantedMaps(), "reverse": WantedMaps()}
    for pair in pairs:
        places = {tp for tp in starts if tp.topic == pair.topic}
        places |= {
            TopicPartition(pair.topic, tp.partition)
            for tp in target_starts
            if tp.topic == pair.target_topic
        }
        for place in places:
            counterpart = TopicPartition(pair.target_topic, place.partition)
            wanted[pair.direction].add(
                pair.direction,
                (place, starts),
                (counterpart, target_starts),
                [offsets.get(place) for offsets in committed.values()],
                [offsets.get(counterpart) for offsets in target_committed.values()],
            )
    return (
        wanted["forward"].load(context.forward.maps),
        wanted["reverse"].load(context.forward.reverse_maps),
    )


def read_writers(cluster: Cluster, places: Collection[TopicPartition]) -> tuple[Writer, ...]:
    """Return the producers that brokers remember of partitions, none where srm may not ask."""
    try:
        found = cluster.active_producers(places) if places else {}
    except AuthorizationError as error:
        log.warning("producers that follow no route are not seen: %s", error)
        return ()
    return tuple(
        Writer(one.partition, one.producer_id, one.last_sequence, one.last_timestamp_ms)
        for producers in found.values()
        for one in producers
    )


def _open_transactions(
    cluster: Cluster, places: Collection[TopicPartition]
) -> tuple[Mapping[TopicPartition, tuple[OpenTransaction, ...]], str]:
    """Return the open transactions, or why they may not be seen: that they are open is known."""
    try:
        return (cluster.open_transactions(places) if places else {}), ""
    except AuthorizationError as error:
        return {}, str(error)
