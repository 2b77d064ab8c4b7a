"""Reading of the facts that a move decides on: one look at both clusters, in a safe order."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from srm.domain.groups.translation import UNKNOWN_LOG, Direction
from srm.domain.moves.gate.presence import ProducerPresence
from srm.domain.moves.records.request import MoveRequest
from srm.domain.names.topics import TopicPartition
from srm.domain.names.transactions import OpenTransaction
from srm.domain.offset_map.map_wanted import Wanted
from srm.engine.cluster_ports import Cluster, TopicDescription
from srm.engine.groups.checkpoints import per_group, read_ledger
from srm.engine.groups.partition_facts import (
    Starts,
    WantedMaps,
    logs_of,
    past_markers,
    starts_of,
)
from srm.engine.moves.control.move_records import MoveContext
from srm.engine.moves.control.routes import RoutingTables
from srm.engine.moves.planning.facts import Away, MoveFacts, Present, TopicPair, topic_pairs
from srm.engine.moves.planning.last_places import LastPlaces, read_last_places
from srm.engine.ports import FlowMaps
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
    """Take one look at both clusters; at the target alone for an unplanned move.

    Order matters. Members before commits: a group seen without members no longer commits. Maps
    before logs: records written in between count as not copied, never the reverse. A group that
    srm is not authorized to read gets its own error; the others are still read.
    """
    if request.is_unplanned:
        pairs = topic_pairs(context, topics)
        names = [pair.target_topic for pair in pairs]
        known = read_last_places(context, context.target.topics(), names)
        return read_target(context, request, topics, groups, known)
    return _read_both(context, request, topics, groups)


def read_target(
    context: MoveContext,
    request: MoveRequest,
    topics: tuple[str, ...],
    groups: Collection[str],
    known: LastPlaces,
    *,
    routing: RoutingTables | None = None,
    also: Collection[str] = (),
    with_groups: bool = True,
) -> MoveFacts:
    """Take one look at the target alone, for a lost source.

    ``also``: topics whose positions are wanted too, though they do not move.
    ``with_groups``: also describe the groups on the target, one request each. Otherwise only groups
    without a last known position have their commits read there.
    """
    target, pairs = context.target, topic_pairs(context, topics)
    queried = sorted(group for group in groups if with_groups or not known.places.get(group))
    described = target.groups(queried) if with_groups and queried else {}
    on_target = known.topics
    committed, errors = per_group(target.commits_of(queried))
    places = partitions(on_target, [pair.target_topic for pair in pairs])
    served = [tp for tp in places if tp.partition not in on_target[tp.topic].leaderless]
    positioned, away = {*topics, *also}, known.away(groups)
    maps_ms = context.now_ms()
    wanted = _wanted_after_loss(pairs, away, committed)
    maps = context.forward.maps.load(positioned, wanted) if positioned else FlowMaps({})
    # A partition without a leader does not keep groups from moving.
    logs = {
        **dict.fromkeys(places, UNKNOWN_LOG),
        **logs_of(target, served, starts_of(target, served)),
    }
    return MoveFacts(
        request=request,
        topics=topics,
        groups=tuple(sorted(groups)),
        pairs=pairs,
        source=away,
        target=Present(target.alias, on_target, described, committed, errors, logs),
        ledger=known.ledger,
        maps=maps,
        maps_ms=maps_ms,
        routing=routing or RoutingTables.of_target(context),
    )


def _wanted_after_loss(
    pairs: Collection[TopicPair],
    away: Away,
    committed: Mapping[str, Mapping[TopicPartition, int]],
) -> Mapping[TopicPartition, Wanted]:
    """Return the map parts around last known positions that a group's own commit has passed."""
    wanted = dict[TopicPartition, Wanted]()
    originals = {pair.target_topic: pair.original for pair in pairs if pair.direction == "forward"}
    for group, places in away.places.items():
        for place, last in places.items():
            theirs = committed.get(group, {}).get(place)
            if place.topic in originals and theirs is not None and theirs > last.offset:
                original = TopicPartition(originals[place.topic], place.partition)
                around = Wanted.of((), (last.offset, theirs))
                wanted[original] = wanted.get(original, Wanted()) | around
    return wanted


def _read_both(
    context: MoveContext, request: MoveRequest, topics: tuple[str, ...], groups: Collection[str]
) -> MoveFacts:
    """Take one look at both clusters."""
    source, target = context.source, context.target
    pairs = topic_pairs(context, topics)
    source_groups, target_groups = source.groups(groups), target.groups(groups)
    source_topics, target_topics = source.topics(), target.topics()
    upstream = partitions(source_topics, [pair.topic for pair in pairs])
    downstream = partitions(target_topics, [pair.target_topic for pair in pairs])
    # Pending before committed: a commit decided in between is in the committed offsets.
    pending, unseen = per_group(source.pending_commits(groups, upstream))
    committed, unread = per_group(source.commits_of(groups))
    target_committed, target_unread = per_group(target.commits_of(groups))
    # Acks before logs: a client that has acknowledged the hold has written all its records.
    routing = RoutingTables.read(context)
    starts, target_starts = starts_of(source, upstream), starts_of(target, downstream)
    maps_ms = context.now_ms()
    maps, reverse_maps = _maps(context, pairs, starts, target_starts, committed, target_committed)
    logs = logs_of(source, upstream, starts)
    reverse_maps = past_markers(reverse_maps, source, _read_copies(pairs, committed), logs)
    originals = [tp for tp in upstream if tp.topic in topics and tp in logs]
    held_back = [tp for tp in originals if logs[tp].stable_end < logs[tp].end]
    transactions, hidden = _open_transactions(source, held_back)
    return MoveFacts(
        request=request,
        topics=topics,
        groups=tuple(sorted(groups)),
        pairs=pairs,
        source=Present(
            source.alias,
            source_topics,
            source_groups,
            committed,
            {**unseen, **unread},
            logs,
            pending,
        ),
        target=Present(
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
    """Load both maps around the groups' commits on both sides, and around log starts."""
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


def _read_copies(
    pairs: Collection[TopicPair], committed: Mapping[str, Mapping[TopicPartition, int]]
) -> dict[TopicPartition, tuple[TopicPartition, int]]:
    """Return the copies that groups read on the source by original, with the furthest commit."""
    originals = {pair.topic: pair.original for pair in pairs if pair.direction == "reverse"}
    found = dict[TopicPartition, tuple[TopicPartition, int]]()
    for offsets in committed.values():
        for copy, offset in offsets.items():
            if copy.topic in originals:
                original = TopicPartition(originals[copy.topic], copy.partition)
                found[original] = copy, max(offset, found.get(original, (copy, 0))[1])
    return found


def read_writers(
    cluster: Cluster, places: Collection[TopicPartition]
) -> tuple[ProducerPresence, ...]:
    """Return the producers that brokers know for partitions, none if srm is not authorized."""
    try:
        found = cluster.active_producers(places) if places else {}
    except AuthorizationError as error:
        log.warning("producers that follow no route are not visible: %s", error)
        return ()
    return tuple(
        ProducerPresence(one.partition, one.producer_id, one.last_sequence, one.last_timestamp_ms)
        for producers in found.values()
        for one in producers
    )


def _open_transactions(
    cluster: Cluster, places: Collection[TopicPartition]
) -> tuple[Mapping[TopicPartition, tuple[OpenTransaction, ...]], str]:
    """Return the open transactions, or why srm is not authorized to list them."""
    try:
        return (cluster.open_transactions(places) if places else {}), ""
    except AuthorizationError as error:
        return {}, str(error)
