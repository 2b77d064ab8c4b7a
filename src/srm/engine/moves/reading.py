"""Choice of what moves, and reading of the facts about it: one look at both clusters."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from heapq import nlargest
from typing import Final, TypeVar

from srm.config.model import FlowConfig
from srm.domain.flow_state.replication_state import decode_state
from srm.domain.groups.checkpoints import deletions
from srm.domain.groups.group_sync import GroupLedger
from srm.domain.groups.translation import UNKNOWN_LOG, Direction
from srm.domain.moves.disaster import RATE_MS
from srm.domain.moves.gate import ANNOUNCED_MS
from srm.domain.moves.plan import LastPlace
from srm.domain.moves.request import MoveRequest
from srm.domain.moves.routing import group_subject, topic_subject
from srm.domain.names import internal_topics
from srm.domain.names.topics import ActiveProducer, TopicPartition, abort_command
from srm.domain.offset_map.map_loader import Wanted
from srm.engine.cluster_ports import Cluster, GroupDescription, Topics
from srm.engine.flows.source_look import MOST_READ, partitions_of, record_times
from srm.engine.flows.supervision import read_driver, state_topic
from srm.engine.groups.checkpoints import (
    WITHOUT_OFFSETS,
    groups_with_offsets,
    per_group,
    read_checkpoints,
)
from srm.engine.groups.ledger import read_ledger
from srm.engine.groups.proving import read_proof
from srm.engine.groups.translate import (
    Maps,
    Starts,
    WantedMaps,
    first_records,
    logs_of,
    past_markers,
    starts_of,
)
from srm.engine.moves.context import MoveContext
from srm.engine.moves.facts import (
    Away,
    MoveFacts,
    Offsets,
    SideFacts,
    TopicPair,
    last_heard,
    topic_pairs,
)
from srm.engine.moves.history import RoutingTables
from srm.engine.ports import FlowContext, FlowMaps
from srm.errors import AuthorizationError, NotFoundError, UsageError

log = logging.getLogger(__name__)
_K = TypeVar("_K")
_R = TypeVar("_R")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class MoveScope:
    """The topics and groups that move; ``notices`` name the groups that stay, with the reason."""

    topics: tuple[str, ...]
    groups: tuple[str, ...]
    notices: tuple[str, ...] = ()


_Logs = tuple[Starts, Mapping[str, Offsets]]
_CLOCKS_MS: Final = 60_000
"""Maximum difference between clocks of producers and slots."""
_MARKERS: Final = 8
"""Maximum offsets between two positions that may all be markers; more are taken for records."""


def originals(topics: Collection[str], config: FlowConfig) -> set[str]:
    return set(filter(config.names.is_original, topics))


def movable(context: FlowContext) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the original topics and, of both sides, the groups that a move may name, in order."""
    config = context.config
    groups = {*groups_with_offsets(context.source), *groups_with_offsets(context.target)}
    return (
        tuple(sorted(originals(context.source.topics(), config))),
        tuple(sorted(filter(config.group_names.matches, groups))),
    )


def topics_to_move(
    context: MoveContext, request: MoveRequest, on_target: Collection[str]
) -> tuple[str, ...]:
    """Return the topics that a request names, or that its named groups read, or all copied.

    Without the source those with a copy; all, if nothing is known of its groups.
    """
    forward, reverse = context.forward.config, context.reverse.config
    names, flow = forward.names, forward.flow
    own = originals(on_target, reverse)
    if request.is_unplanned:
        # A name that both would keep is of a third cluster unless a flow copies it to the source.
        own = {topic for topic in own if reverse.enabled or not names.keeps_name(topic)}
        copied = {
            original
            for topic in on_target
            if (original := names.original(topic)) and not names.is_internal(topic)
            if not names.is_heartbeats(topic)
        }
        there = {*copied, *on_target}
        missing = f"is not on {flow.target}, nor is its copy"
    else:
        on_source = context.source.topics()
        copied = originals(on_source, forward)
        own = {topic for topic in own if names.replica(topic) in on_source}
        there = {*on_source, *on_target}
        missing = f"exists neither on {flow.source} nor on {flow.target}"
    for topic in request.topics:
        original = names.original(topic) or names.origin(topic) or topic
        if original != topic:
            raise UsageError(
                f"topic {topic!r} is a copy: name the original, {original!r}; its copies move with "
                f"it"
            )
        if topic not in there:
            raise NotFoundError(f"topic {topic!r} {missing}")
    every = copied | own
    read = _read_by_groups(context, request) if request.groups and not request.topics else every
    chosen = every & read or (every if request.is_unplanned else set())
    return tuple(sorted(request.topics or chosen))


def _read_by_groups(context: MoveContext, request: MoveRequest) -> set[str]:
    """Return the originals that the named groups read, by their commits and announcements.

    Without the source, by their last known places and their own commits on the target.
    """
    forward, reverse, target = context.forward.config, context.reverse.config, context.target
    groups, read = {*request.groups}, set[str]()
    if request.is_unplanned:
        routing = RoutingTables.read_target(context)
        topic = forward.checkpoints_topic
        on_target = target.topics()
        for one in read_checkpoints(target, topic, on_target, gone=True):
            read |= {one.topic_partition.topic} if one.group in groups else set()
        for entry in read_ledger(target, on_target).entries():
            read |= {entry.topic_partition.topic} if entry.group in groups else set()
        committed, _ = per_group(target.commits_of(request.groups))
    else:
        routing = RoutingTables.read(context)
        committed, _ = per_group(context.source.commits_of(request.groups))
    read |= {place.topic for offsets in committed.values() for place in offsets}
    subjects = {*map(group_subject, groups)}
    acks = (one.ack for one in routing.on_source if one.ack.subject in subjects)
    read |= {place.rpartition("-")[0] for ack in acks for place in ack.positions}
    return {forward.names.original(one) or reverse.names.original(one) or one for one in read}


def groups_on_source(
    context: MoveContext, request: MoveRequest, topics: tuple[str, ...]
) -> MoveScope:
    """Return the groups that a request names, or all with offsets on the moving topics.

    A group with members but no commits moves if its clients follow routes. A move of everything
    also includes groups without offsets that a route sends to the source.
    """
    source = context.source
    if request.groups:
        described = source.groups(request.groups)
        if no_home := _without_home(context, described):
            raise UsageError(f"group {no_home[0]!r} cannot be moved: {_no_home(request)}")
        for group in request.groups:
            if described[group].state == "dead" and not source.committed_offsets(group):
                raise NotFoundError(
                    f"consumer group {group!r} does not exist on {request.source}: "
                    f"name a group that has offsets there"
                )
            if described[group].kind in WITHOUT_OFFSETS:
                raise UsageError(
                    f"group {group!r} on {request.source} cannot be moved "
                    f"({described[group].kind}): name groups that commit offsets"
                )
        return MoveScope(topics, tuple(sorted(request.groups)))
    config = context.forward.config
    ours, selection = {*topics, *map(config.names.replica, topics)}, _selection(context, request)
    listed = {name: group for name, group in source.groups().items() if selection(name)}
    homeless = _without_home(context, listed)
    committing = {name for name, group in listed.items() if group.kind not in WITHOUT_OFFSETS}
    committed, errors = per_group(source.commits_of(sorted(committing.difference(homeless))))
    unread = [f"group {name} is not moved: {why.text}" for name, why in errors.items()]
    unread += [f"share group {name} is not moved: {_no_home(request)}" for name in homeless]
    found = {name for name, offsets in committed.items() if {tp.topic for tp in offsets} & ours}
    fresh = {name for name, offsets in committed.items() if not offsets and listed[name].members}
    routing = RoutingTables.read(context)
    known, following = _followers(routing, ours)
    routed = set(filter(selection, _routed_to_source(request, routing)))
    # Offsets name the topics of a group; one whose offsets are not known does not move.
    routed -= {name for name in listed if committed.get(name) != {}}
    deleted = _deleted_on_source(context, routed.difference(listed))
    deleted = _still_deleted(deleted, request, routing, context.now_ms() - ANNOUNCED_MS)
    routed -= deleted.keys()
    unread += deletions(request.source, deleted, may_name=False)
    silent = [
        f"group {name} has members and has committed nothing, so its topics are unknown. It is "
        f"not moved; name it with --group to move it"
        for name in fresh - known - routed
    ]
    groups = tuple(sorted(found | fresh & following | routed))
    return MoveScope(topics, groups, tuple(sorted((*unread, *silent))))


def _deleted_on_source(context: MoveContext, names: Collection[str]) -> dict[str, int]:
    """Return absent groups with a checkpoint whose commits are gone, and since when (0: just)."""
    if not names:
        return {}
    answered, _ = context.source.commits_of(sorted(names))
    absent = {name for name, offsets in answered.items() if not offsets}
    found, target = dict[str, int](), context.target
    topic = context.forward.config.checkpoints_topic
    for one in read_checkpoints(target, topic, target.topics(), gone=True):
        if one.group in absent:
            found[one.group] = max(one.gone_since_ms, found.get(one.group, 0))
    return found


def _still_deleted(
    deleted: Mapping[str, int], request: MoveRequest, routing: RoutingTables, recently_ms: int = 0
) -> dict[str, int]:
    """Return the deleted groups that nothing has brought to the source since.

    A client that has announced itself may not have committed yet, and what an earlier move has led
    there may have no checkpoint. ``recently_ms``: counts as the time of a deletion just now.
    """
    seen = defaultdict[str, int](int)
    for one in routing.on_source:
        seen[one.ack.subject] = max(one.stamped_ms, seen[one.ack.subject])
    for subject, route in routing.merge.items():
        for led in (one for one in route.each if one.decided and one.cluster == request.source):
            seen[subject] = max(led.time_ms, seen[subject])
    return {
        group: since_ms
        for group, since_ms in deleted.items()
        if seen[group_subject(group)] <= (since_ms or recently_ms)
    }


def _without_home(context: MoveContext, listed: Mapping[str, GroupDescription]) -> tuple[str, ...]:
    """Return the share groups, in order, if the target cannot have any."""
    share = tuple(sorted(name for name, group in listed.items() if group.kind == "share"))
    return () if share and "share" in context.target.group_kinds() else share


def _no_home(request: MoveRequest) -> str:
    return (
        f"{request.target} has no share groups, which need Kafka 4.2 or later with "
        "share.version = 1"
    )


def _followers(routing: RoutingTables, ours: Collection[str]) -> tuple[set[str], set[str]]:
    """Return the groups with a client that follows routes, and those that may read some topics.

    A program that only restarts at another address does not report its topics, so any count.
    """
    prefix = group_subject("")
    acks = [one.ack for one in routing.on_source if one.ack.subject.startswith(prefix)]
    reading = (
        ack
        for ack in acks
        if not ack.positions or {p.rpartition("-")[0] for p in ack.positions} & {*ours}
    )
    known, some = ({ack.subject.removeprefix(prefix) for ack in each} for each in (acks, reading))
    return known, some


def _routed_to_source(request: MoveRequest, routing: RoutingTables) -> set[str]:
    """Return the groups routed to the source, of unknown topics; none for a move of some topics."""
    prefix = group_subject("")
    return {
        subject.removeprefix(prefix)
        for subject, route in routing.merge.items()
        if not request.topics and subject.startswith(prefix)
        if request.source in {one.cluster for one in route.each}
    }


def _topics_there(request: MoveRequest, routing: RoutingTables) -> set[str]:
    """Return the topics whose clients are on the target: groups of the move may read them, too."""
    prefix = topic_subject("")
    there = {
        subject.removeprefix(prefix)
        for subject, route in routing.merge.items()
        if subject.startswith(prefix) and route.state == "go"
        if routing.where.cluster_of(subject, request.source) == request.target
    }
    return there.intersection(request.topics) if request.topics else there


def groups_after_loss(
    context: MoveContext, request: MoveRequest, away: Away, routing: RoutingTables
) -> tuple[str, ...]:
    """Return the groups that a request names, or all with a last known position or a follower.

    A move of everything adds those routed to the source: no place may have reached the target.
    Of deleted groups only those move that a client or a move has brought there since.
    """
    if request.groups:
        return tuple(sorted(request.groups))
    gone = _still_deleted(away.deleted, request, routing)
    known, _ = _followers(routing, ())
    found = {*away.places, *known} | _routed_to_source(request, routing)
    return tuple(sorted(filter(_selection(context, request), found - gone.keys())))


def _selection(context: MoveContext, request: MoveRequest) -> Callable[[str], bool]:
    """Return whether a group moves where the request names none."""
    matches, stay = context.forward.config.group_names.matches, {*request.exclude_groups}
    return lambda group: group not in stay and matches(group)


def _read_last_places(
    context: MoveContext,
    on_target: Topics,
    ledger: GroupLedger,
    wanted: Collection[str],
    named: Collection[str],
) -> Away:
    """Read the newer of checkpoint and settled own write in the wanted topics of the target.

    Those of commits that the source no longer had are only read for ``named`` groups.
    """
    target, config = context.target, context.forward.config
    topic = internal_topics.checkpoints(config.flow.source, config.policy.separator)
    found, since = dict[str, dict[TopicPartition, LastPlace]](), dict[str, int]()
    gone, recent = set[tuple[str, TopicPartition]](), set[str]()
    for one in read_checkpoints(target, topic, on_target, gone=True):
        place = one.topic_partition
        if one.is_forgotten or (one.gone_since_ms and one.group not in named):
            gone.add((one.group, place))
            if place.topic in wanted:
                since[one.group] = max(one.gone_since_ms, since.get(one.group, 0))
                recent |= set() if one.is_forgotten else {one.group}
        elif place.topic in wanted:
            found.setdefault(one.group, {})[place] = LastPlace(
                one.downstream_offset,
                one.upstream_offset,
                time_ms=one.time_ms,
                is_share=one.is_share,
            )
    for entry in ledger.entries():
        place = entry.topic_partition
        is_gone = (entry.group, place) in gone
        if place.topic not in wanted or not entry.settled or is_gone:
            continue
        places = found.setdefault(entry.group, {})
        known = places.get(place)
        if known is not None and known.offset == entry.intended:
            places[place] = replace(known, time_ms=max(known.time_ms, entry.time_ms))
        elif known is None or entry.time_ms > known.time_ms:
            written = LastPlace(entry.intended, None, by_srm=True, time_ms=entry.time_ms)
            places[place] = replace(written, is_share=known is not None and known.is_share)
    deleted = {group: at for group, at in since.items() if group not in found}
    proof, forgotten = read_proof(target, config.flow), frozenset(deleted.keys() - recent)
    return Away(config.flow.source, places=found, proof=proof, deleted=deleted, forgotten=forgotten)


def _read_side(
    cluster: Cluster,
    topics: Topics,
    groups: Collection[str],
    pending: Collection[TopicPartition] | None = None,
    *,
    describe: bool = True,
) -> SideFacts:
    """Read groups and their commits; ``pending``: those in open transactions, of partitions, too.

    Members before commits: a group seen without members no longer commits. Pending before
    committed: a commit decided in between is in the committed offsets.
    """
    described = cluster.groups(groups) if describe and groups else {}
    undecided, unseen = per_group(
        ({}, {}) if pending is None else cluster.pending_commits(groups, pending)
    )
    committed, unread = per_group(cluster.commits_of(groups))
    # Groups that were absent and have offsets now: srm itself writes some.
    born = [n for n, group in described.items() if group.state == "dead" and committed.get(n)]
    described |= cluster.groups(born) if born else {}
    errors = {**unseen, **unread}
    return SideFacts(cluster.alias, topics, described, committed, errors, pending=undecided)


def read_facts(
    context: MoveContext, request: MoveRequest, topics: tuple[str, ...], groups: Collection[str]
) -> MoveFacts:
    """Take one look at both clusters; at the target alone for an unplanned move.

    Order matters, see :func:`_read_side`. Maps before logs: records written in between count as not
    copied, never the reverse. A group that srm is not authorized to read gets its own error; the
    others are still read.
    """
    if request.is_unplanned:
        return read_target(context, request, MoveScope(topics, tuple(sorted(groups))))
    source, target = context.source, context.target
    # Acks before logs: a client that has acknowledged the hold has written all its records.
    routing = RoutingTables.read(context)
    pairs = topic_pairs(context, sorted({*topics} | _topics_there(request, routing)))
    source_topics, target_topics = source.topics(), target.topics()
    upstream = partitions_of(source_topics, [pair.topic for pair in pairs])
    downstream = partitions_of(target_topics, [pair.target_topic for pair in pairs])
    here = _read_side(source, source_topics, groups, upstream)
    there = _read_side(target, target_topics, groups)
    share = [name for name, group in here.groups.items() if group.kind == "share"]
    unacknowledged, _ = source.share_lags(share) if share else ({}, {})
    starts, target_starts = starts_of(source, upstream), starts_of(target, downstream)
    maps_ms = context.now_ms()
    maps = _maps(context, pairs, (starts, here.committed), (target_starts, there.committed))
    logs = logs_of(source, upstream, starts)
    copies = _furthest_in_copies(pairs, "reverse", here.committed.values())
    originals = [tp for tp in upstream if tp.topic in topics and tp in logs]
    held_back = [tp for tp in originals if logs[tp].stable_end < logs[tp].end]
    transactions, hidden = _if_authorized(source.open_transactions, held_back)
    uncompared = "share.auto.offset.reset is not compared"
    resets, _ = _if_authorized(source.share_resets, share, uncompared)
    target_resets, _ = _if_authorized(target.share_resets, share, uncompared)
    return MoveFacts(
        request=request,
        topics=topics,
        groups=tuple(sorted(groups)),
        pairs=pairs,
        source=replace(here, logs=logs, unacknowledged=unacknowledged, resets=resets),
        target=replace(
            there, logs=logs_of(target, downstream, target_starts), resets=target_resets
        ),
        transactions=transactions,
        hidden=hidden,
        ledger=read_ledger(context.target, target_topics),
        source_ledger=read_ledger(source, source_topics),
        maps=maps["forward"],
        maps_ms=maps_ms,
        reverse_maps=past_markers(maps["reverse"], source, copies, logs),
        routing=routing,
        writers=read_writers(source, originals),
    )


def read_target(
    context: MoveContext,
    request: MoveRequest,
    chosen: MoveScope | None = None,
    *,
    also: Collection[str] = (),
    with_groups: bool = True,
    exact: bool = True,
    paused: bool = False,
) -> MoveFacts:
    """Take one look at the target alone, for a lost source.

    ``chosen``: topics and groups that move, if an earlier look chose them.
    ``also``: topics whose positions are wanted too, though they do not move.
    ``with_groups``: also describe the groups there, one request each, and read all their commits,
    not only those of groups without a last known position.
    ``exact``: load the maps around their places, to count records and not offsets.
    ``paused``: without that, leave out at least the seals that follow the copies.
    """
    target = context.target
    on_target = target.topics()
    # An earlier move may have sent the producers of some topics that the chosen groups read.
    read = (chosen and request.topics) or topics_to_move(context, request, on_target)
    topics = chosen.topics if chosen else read
    pairs = topic_pairs(context, read)
    ledger = read_ledger(target, on_target)
    names = {pair.target_topic for pair in pairs}
    away = _read_last_places(context, on_target, ledger, names, request.groups)
    routing = RoutingTables.read_target(context)
    groups = chosen.groups if chosen else groups_after_loss(context, request, away, routing)
    queried = sorted(group for group in groups if with_groups or not away.places.get(group))
    there = _read_side(target, on_target, queried, describe=with_groups)
    places = partitions_of(on_target, [pair.target_topic for pair in pairs])
    served = [tp for tp in places if tp.partition not in on_target[tp.topic].leaderless]
    own = {pair.target_topic for pair in pairs if pair.direction == "reverse"}
    away = _after_markers(target, away, there.committed, {tp for tp in served if tp.topic in own})
    positioned = {*read, *also}
    maps_ms = context.now_ms()
    wanted = _wanted_after_loss(pairs, away, there.committed)
    maps = context.forward.maps.load(positioned, wanted) if positioned else FlowMaps({})
    # A partition without a leader does not keep groups from moving.
    logs = {
        **dict.fromkeys(places, UNKNOWN_LOG),
        **logs_of(target, served, starts_of(target, served)),
    }
    counted: FlowMaps | None = None
    if exact or paused:
        # A damaged map counts offsets, and takes no position away from the forecast.
        counted = context.forward.maps.load(read, _at_places(pairs, away)) if exact else maps
        ends = [{place: log.end for place, log in logs.items()}]
        copies = _furthest_in_copies(pairs, "forward", ends)
        counted = past_markers(counted, target, copies, logs)
    return MoveFacts(
        request=request,
        topics=topics,
        groups=groups,
        pairs=pairs,
        source=away,
        target=replace(there, logs=logs),
        ledger=ledger,
        maps=maps,
        maps_ms=maps_ms,
        routing=routing,
        counted=counted,
    )


def _further_commits(
    away: Away, committed: Mapping[str, Offsets]
) -> Iterator[tuple[str, TopicPartition, int, int]]:
    """Yield the groups whose own commit has passed their last known position, and both offsets."""
    for group, places in away.places.items():
        for place, last in places.items():
            theirs = committed.get(group, {}).get(place, last.offset)
            if theirs > last.offset:
                yield group, place, last.offset, theirs


def _after_markers(
    target: Cluster, away: Away, committed: Mapping[str, Offsets], own: Collection[TopicPartition]
) -> Away:
    """Move positions in the target's own partitions past markers, as Java's commits do."""
    further = _further_commits(away, committed)
    near = [(g, tp, at, to) for g, tp, at, to in further if tp in own and to - at <= _MARKERS]
    first = first_records(target, {(tp, at) for _, tp, at, _ in near}, "markers")
    moved = {group: {**positions} for group, positions in away.places.items()}
    for group, place, offset, theirs in near:
        record = first.get((place, offset))
        if (place, offset) in first and (record is None or record.offset >= theirs):
            moved[group][place] = replace(moved[group][place], offset=theirs)
    return replace(away, places=moved)


def _wanted_after_loss(
    pairs: Collection[TopicPair], away: Away, committed: Mapping[str, Offsets]
) -> Mapping[TopicPartition, Wanted]:
    """Return the map parts around last known positions that a group's own commit has passed."""
    wanted = dict[TopicPartition, Wanted]()
    originals = {pair.target_topic: pair.original for pair in pairs if pair.direction == "forward"}
    for _, place, offset, theirs in _further_commits(away, committed):
        if place.topic in originals:
            original = TopicPartition(originals[place.topic], place.partition)
            wanted[original] = wanted.get(original, Wanted()) | Wanted.of((), (offset, theirs))
    return wanted


def _at_places(pairs: Collection[TopicPair], away: Away) -> Mapping[TopicPartition, Wanted]:
    """Return the map parts around all last known positions, to count records after them."""
    at = {
        group: {tp: last.offset + 1 for tp, last in some.items()}
        for group, some in away.places.items()
    }
    return _wanted_after_loss(pairs, away, at)


def _maps(context: MoveContext, pairs: Collection[TopicPair], source: _Logs, target: _Logs) -> Maps:
    (starts, committed), (target_starts, target_committed) = source, target
    wanted = WantedMaps()
    for pair in pairs:
        numbers = {tp.partition for tp in starts if tp.topic == pair.topic}
        numbers |= {tp.partition for tp in target_starts if tp.topic == pair.target_topic}
        for number in numbers:
            place = TopicPartition(pair.topic, number)
            counterpart = TopicPartition(pair.target_topic, number)
            wanted.add(
                pair.direction,
                (place, starts),
                (counterpart, target_starts),
                [offsets.get(place) for offsets in committed.values()],
                [offsets.get(counterpart) for offsets in target_committed.values()],
                is_shared=pair.is_shared,
            )
    return wanted.load(context.forward)


def _furthest_in_copies(
    pairs: Collection[TopicPair], direction: Direction, offsets: Iterable[Offsets]
) -> dict[TopicPartition, tuple[TopicPartition, int]]:
    """Return the copies of a direction by original, each with the furthest of some offsets."""
    chosen = [pair for pair in pairs if pair.direction == direction]
    copies = {p.topic if direction == "reverse" else p.target_topic: p.original for p in chosen}
    found = dict[TopicPartition, tuple[TopicPartition, int]]()
    for copy, offset in (one for some in offsets for one in some.items()):
        if copy.topic in copies:
            original = TopicPartition(copies[copy.topic], copy.partition)
            found[original] = copy, max(offset, found.get(original, (copy, 0))[1])
    return found


def read_writers(
    cluster: Cluster, places: Collection[TopicPartition]
) -> tuple[ActiveProducer, ...]:
    """Return the producers that brokers know for partitions, none if srm is not authorized."""
    what = "producers that follow no route are not visible"
    found, _ = _if_authorized(cluster.active_producers, places, what)
    return tuple(one for producers in found.values() for one in producers)


def _if_authorized(
    read: Callable[[Collection[_K]], Mapping[_R, _T]], wanted: Collection[_K], missing: str = ""
) -> tuple[Mapping[_R, _T], str]:
    """Read what is wanted, or return why srm is not authorized; the log says what is missing."""
    try:
        return (read(wanted) if wanted else {}), ""
    except AuthorizationError as error:
        if missing:
            log.warning("%s: %s", missing, error)
        return {}, str(error)


def read_outlook(
    context: MoveContext, facts: MoveFacts, commands: Mapping[bytes, bytes] | None = None
) -> MoveFacts:
    """Add what the copies, and the flow's ``commands``, show of the source to a look without it."""
    target, logs = context.target, facts.target.logs
    of_source = context.forward.config.names.original  # a kept name may be of the target alone
    names = {
        pair.target_topic: pair.original
        for pair in facts.pairs
        if pair.direction == "forward" and of_source(pair.target_topic)
    }
    copies = {
        TopicPartition(names[place.topic], place.partition): place
        for place in logs
        if place.topic in names
    }
    commands = commands or state_topic(context.forward).read_commands()
    gone = _without_original(commands, facts, copies)
    copies = {original: copies[original] for original in copies.keys() - gone}
    own = {place for place in copies.values() if logs[place] is not UNKNOWN_LOG}
    newest = target.newest_times(own) if own else {}
    late = [
        (at.source_end - at.source_next, copy, at.target_next - 1)
        for original, copy in copies.items()
        if (at := facts.maps.get(original).position) is not None and copy in own
        if at.source_end > at.source_next and at.target_next
    ]
    # The newest timestamp of a log with lag may be that of a marker.
    last = record_times(target, [one[1:] for one in nlargest(MOST_READ, late)])
    away = replace(
        facts.away,
        recent=_recent(context, newest, facts),
        newest={**newest, **last},
        growth=sum(report.source_growth for report in facts.maps.reports),
        copies=copies,
        transactions=_transactions(context, facts),
        without_copy=_without_copy(context, commands, {*names.values()}, facts.request.topics),
    )
    return replace(facts, source=away)


def _without_copy(
    context: MoveContext,
    commands: Mapping[bytes, bytes],
    copied: Collection[str],
    wanted: Collection[str],
) -> tuple[str, ...]:
    """Return the topics that the replicator could not copy, of all or of those that move."""
    beat, is_heartbeats = read_driver(commands), context.forward.config.names.is_heartbeats
    pending = () if beat is None else beat.pending
    left = [one for one in pending if one not in copied and not is_heartbeats(one)]
    return tuple(one for one in left if not wanted or one in wanted)


def _without_original(
    commands: Mapping[bytes, bytes], facts: MoveFacts, copies: Collection[TopicPartition]
) -> set[TopicPartition]:
    """Return the partitions that a topic created again has no more, as its assignment says."""
    unknown = {one for one in copies if facts.maps.get(one).position is None}
    if not unknown:
        return unknown
    state = decode_state(commands)
    again = {pair.target_topic_id for pair in state.copied if not pair.active}
    present = [one for _, one in state.newest_assignments().values()]
    assigned = {TopicPartition(one.topic, one.partition) for one in present}
    topics = {one.topic for one in present if one.target_topic_id in again}
    return {one for one in unknown - assigned if one.topic in topics}


def _recent(context: MoveContext, newest: Offsets, facts: MoveFacts) -> dict[TopicPartition, int]:
    """Count the records of each copy in the last seconds of its topic, by their timestamps.

    Records from more than a minute before the source's last answer do not count. Slots also report
    the growth of the source by offsets, as producers' clocks may be further off.
    """
    heard: defaultdict[str, int] = defaultdict(int)
    for (topic_id, _), heard_ms in last_heard(facts.maps.reports).items():
        heard[topic_id] = max(heard[topic_id], heard_ms)
    last = {name: heard[about.topic_id] - _CLOCKS_MS for name, about in facts.target.topics.items()}
    for place, time_ms in newest.items():
        last[place.topic] = max(last.get(place.topic, 0), time_ms)
    since = {place: last[place.topic] - RATE_MS for place in newest}
    starts = context.target.offsets_at(since) if since else {}
    return {place: facts.target.logs[place].end - at for place, at in starts.items()}


def _transactions(context: MoveContext, facts: MoveFacts) -> tuple[str, ...]:
    held_back = [place for place, at in facts.target.logs.items() if at.stable_end < at.end]
    missing = f"open transactions on {context.target.alias} are not visible"
    found, hidden = _if_authorized(context.target.open_transactions, held_back, missing)
    if hidden:
        return tuple(f"{place} has an open transaction: {hidden}" for place in held_back)
    return tuple(
        f"{place} from offset {one.first_offset} on: {one.owner}; the broker aborts it after its "
        f"transaction.timeout.ms, or end it now: {abort_command(place, one.first_offset)}"
        for place, some in sorted(found.items())
        for one in some
    )
