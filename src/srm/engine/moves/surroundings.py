"""Findings of a plan about the surroundings of its move: what no gate checks, with the remedy."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import Final

from srm.domain.moves.gate import Writers, unknown_writers, unrouted_members
from srm.domain.moves.limits import target_limits
from srm.domain.moves.routing import group_subject, home_subject, topic_subject
from srm.domain.names import internal_topics
from srm.domain.names.policy import SHADOW_PREFIX
from srm.domain.names.topics import Flow
from srm.domain.text.amount import Finding, amount, problem, some, warning
from srm.engine.cluster_ports import Cluster, Topics
from srm.engine.control.control_topics import CONTROL_ID, clock_findings
from srm.engine.control.limits import read_limits
from srm.engine.control.originals import on_target, original_findings, plan_originals
from srm.engine.control.recorded_copies import copies_in, flows_beside
from srm.engine.control.topic_sync import TopicSyncPlan, plan_remote_topics
from srm.engine.flows.source_look import partitions_of
from srm.engine.flows.supervision import driver_status
from srm.engine.flows.target_topics import StateTopic
from srm.engine.groups.checkpoints import WITHOUT_OFFSETS, per_group
from srm.engine.moves.context import MoveContext
from srm.engine.moves.facts import MoveFacts, TopicPair
from srm.engine.moves.losses import lost_route_findings
from srm.engine.moves.reading import read_writers, topics_to_move
from srm.errors import AuthorizationError, message

_SKEW_MS: Final = 2_000
"""Difference of clocks up to which it is ignored."""
_MOST_GROUPS: Final = 2_000
"""Maximum number of groups whose offsets are read to find those that stay."""


def surrounding_findings(context: MoveContext, facts: MoveFacts) -> Iterator[Finding]:
    """Yield the findings in the order in which an operator would handle them.

    For a lost source only its target and the configuration are read.
    """
    clusters = (context.target,) if facts.is_away else (context.target, context.source)
    for cluster in clusters:
        yield from clock_findings(cluster)
    lost = lost_route_findings(clusters, facts.request.flow)
    # A lost source keeps nothing from being repaired, and nothing waits for it.
    yield from (replace(one, blocks=not facts.is_away) for one in lost)
    yield from _way_back(context, facts)
    yield from missing_topics(context, facts)
    yield from _narrow_originals(context, facts)
    yield from _from_home(facts)
    yield from _left_behind(context, facts)
    yield from _limits(context, facts)
    if not facts.is_away:
        yield from _plain_clients(context, facts)
        yield from _state(facts)
        yield from _inflows(context, facts)
        yield from _staying(context, facts)
        yield from _weaker_copies(context, facts)
        yield from _clocks(facts)
    yield from _transaction_logs(facts)


def _way_back(context: MoveContext, facts: MoveFacts) -> Iterator[Finding]:
    config, back = context.reverse.config, facts.request.flow.reverse
    missing = sorted({*facts.topics} - {*config.names.select(facts.topics)})
    if not config.enabled:
        yield warning(
            "way-back",
            f"flow {back} is disabled, so records written on {back.source} after the move are not "
            f"copied and a return is impossible: set {back}.enabled=true",
        )
    elif missing:
        yield warning(
            "way-back",
            f"flow {back} does not copy {', '.join(missing)}, a return is impossible: srm-control "
            f"topics {back.options} --add {','.join(missing)}",
        )


def missing_topics(context: MoveContext, facts: MoveFacts) -> Iterator[Finding]:
    """Yield topics that the target has only as copies, before a move and after its go."""
    absent, flow = absent_originals(context, facts), context.forward.config.flow
    names = {spec.name: topic_subject(spec.name) for spec in absent.create}
    cluster_of = facts.routing.where.cluster_of
    led = [name for name, one in names.items() if cluster_of(one, flow.source) == flow.target]
    yield from original_findings(context.forward, absent, led)


def absent_originals(context: MoveContext, facts: MoveFacts) -> TopicSyncPlan:
    source = None if facts.is_away else facts.source.topics
    return absent_on(context, facts.pairs, facts.target.topics, source)


def absent_on(
    context: MoveContext, pairs: Iterable[TopicPair], target: Topics, source: Topics | None
) -> TopicSyncPlan:
    """Plan the topics that the target has only as copies, but for copies of a third cluster.

    ``source``: None without an answer; then they are planned by their copies.
    """
    here = target if source is None else source
    beside = flows_beside(context.reverse.config.flow, source or {})
    written, came_from = {one.source for one in beside}, context.forward.config.names.came_from
    names = {
        pair.target_topic if source is None else pair.topic
        for pair in pairs
        if pair.direction == "forward"
        if pair.original not in target and came_from(pair.original) not in written
    }
    like = {name: here[name] for name in sorted(names & here.keys())}
    return plan_originals(context.forward, like, is_away=source is None)


def _narrow_originals(context: MoveContext, facts: MoveFacts) -> Iterator[Finding]:
    """Warn of topics that have fewer partitions where producers go than where they come from."""
    there = facts.target.topics
    here = there if facts.is_away else facts.source.topics
    for pair in facts.pairs:
        left = here.get(pair.target_topic if facts.is_away else pair.topic)
        found = there.get(pair.original)
        if pair.direction != "forward" or pair.target_topic == pair.original:
            continue
        if left and found and found.partitions < left.partitions:
            target, wide = facts.request.target, left.partitions
            what = f"--alter --topic {pair.original} --partitions {wide}"
            yield warning(
                "fewer-partitions",
                f"topic {pair.original} has {amount(found.partitions, 'partition')} on {target} "
                f"and {wide} on {facts.request.source}: producers that choose another one fail "
                f"on {target}, and keys change their partition; before the move: "
                f"{on_target(context.forward, what)}",
            )


def _from_home(facts: MoveFacts) -> Iterator[Finding]:
    """Warn of clients that a planned failback takes from where they belong, or may."""
    request, where = facts.request, facts.routing.where
    source, target = request.source, request.target
    if request.operation != "failback" or facts.is_away:
        return
    acks = [one for subject in facts.subjects for one in facts.present.followers(subject)]
    acks = [one for one in acks if one.home != target or not one.generation]
    if acks:
        yield warning(
            "not-home",
            f"clients on {source} ({some(sorted({ack.client for ack in acks}))}) follow "
            f"{some(sorted({ack.subject for ack in acks}))}: the move redirects them to {target}, "
            f"too, which is not their home; let those that must stay there follow no route, or "
            f"leave these topics and groups out",
        )
    named = {ack.subject for ack in acks}.union(map(group_subject, request.groups))
    plain = {one for one in facts.groups if group_subject(one) not in named}
    own = [
        group
        for group in sorted(plain)
        if source not in where.clusters(group_subject(group), target)
    ]
    if own and source not in where.clusters(home_subject(target), target):
        yield warning(
            "not-home",
            f"no move has sent {amount(len(own), 'group')} ({some(own)}) to {source}: if "
            f"{source} is their home, leave them out (--group names those that move)",
        )


def _plain_clients(context: MoveContext, facts: MoveFacts) -> Iterator[Finding]:
    """Warn of clients that no hold reaches."""
    request, now_ms = facts.request, context.now_ms()
    presence = facts.present
    for plan in sorted(facts.plans, key=lambda one: one.group):
        if members := unrouted_members(plan.group, facts.source.group(plan.group).by_id, presence):
            yield warning(
                "plain-members",
                f"group {plan.group}: {', '.join(members)} does not follow routes, so the hold "
                f"cannot reach it. Stop it at hold and start it on {request.target} after go. With "
                f"a new address alone it reads at {request.source}'s offsets until it rejoins",
            )
    at_plan = {writer.name: writer.last_sequence for writer in facts.writers}
    writers = Writers(facts.writers, at_plan, now_ms, round(request.slow_writer_seconds * 1000))
    counts = {topic: unknown_writers(topic, writers, presence) for topic in sorted(facts.topics)}
    plain = {topic: count for topic, count in counts.items() if count}
    for topic, count in plain.items():
        yield warning(
            "plain-producers",
            f"topic {topic}: {count} of the producers that wrote to it recently follow no route. "
            f"Stop them at hold and start them on {request.target} after go. With a new address "
            f"alone a producer keeps its id; if {request.target} has given that to another, "
            f"batches can be acknowledged and never written",
        )
    yield from _shared_ids(context, facts, plain)


def _shared_ids(
    context: MoveContext, facts: MoveFacts, topics: Collection[str]
) -> Iterator[Finding]:
    """Warn of producer ids that both clusters have assigned to writers of one partition."""
    source, target = facts.request.source, facts.request.target
    there = read_writers(context.target, partitions_of(facts.target.topics, topics))
    known = {(one.partition, one.producer_id) for one in there}
    shared = defaultdict[str, set[int]](set)
    for one in facts.writers:
        if one.partition.topic in topics and (one.partition, one.producer_id) in known:
            shared[str(one.partition)].add(one.producer_id)
    for partition, ids in sorted(shared.items()):
        which = some([str(number) for number in sorted(ids)])
        yield warning(
            "producer-ids",
            f"{partition}: {source} and {target} gave producer id {which} to different producers: "
            f"restart the producers of the partition, a new address alone is not enough",
        )


def _state(facts: MoveFacts) -> Iterator[Finding]:
    """Warn of Kafka Streams applications: their changelogs do not move."""
    topics = sorted(topic for topic in facts.source.topics if topic.endswith("-changelog"))
    for group in sorted(facts.groups):
        if changelogs := [topic for topic in topics if topic.startswith(f"{group}-")]:
            yield warning(
                "streams-state",
                f"group {group} is a Kafka Streams application with state ({some(changelogs)}), "
                f"which does not move. Before it starts on {facts.request.target}, delete its "
                f"local state directories, which hold {facts.request.source}'s offsets, and "
                f"rebuild its stores from their input",
            )


def _inflows(context: MoveContext, facts: MoveFacts) -> Iterator[Finding]:
    """Warn of flows that bring records of a third cluster to topics of the move on the source."""
    flow, back, now_ms = context.forward.config.flow, context.reverse.config, context.now_ms()
    on_source, on_target = facts.source.topics, facts.target.topics
    beside = flows_beside(back.flow, on_source)
    found = [one for one in beside if _brings(context.source, on_source, one, facts.topics, now_ms)]
    if back.enabled and back.names.keeps_name("topic"):
        returning = back.names.select(facts.topics)
        beside = flows_beside(flow, on_target)
        if any(_brings(context.target, on_target, one, returning, now_ms) for one in beside):
            found.append(back.flow)  # it brings what others have copied to the target
    for inflow in found:
        yield warning(
            "inflow",
            f"{inflow} copies records of another cluster into topics of the move on "
            f"{flow.source}, which waits while they arrive: run srm replicator stop --flow "
            f"'{inflow}' before it, or wait until no more arrive",
        )


def _brings(
    cluster: Cluster, present: Topics, flow: Flow, topics: Collection[str], now_ms: int
) -> bool:
    """Return True if a flow that runs copies into some of the topics, or srm may not know."""
    try:
        records = StateTopic(cluster, flow.source).read()
    except AuthorizationError:
        return True
    driver = driver_status(records, flow, now_ms)
    runs = driver is not None and driver.alive
    return runs and not copies_in(records, present).isdisjoint(topics)


def _staying(context: MoveContext, facts: MoveFacts) -> Iterator[Finding]:
    """Warn of groups outside the move with offsets on its topics."""
    request, ours = facts.request, {pair.topic for pair in facts.pairs}
    others = [
        group.name
        for group in context.source.groups().values()
        if group.kind not in WITHOUT_OFFSETS
        and group.name not in {*facts.groups, *request.exclude_groups}
        and facts.routing.where.cluster_of(group_subject(group.name), request.source)
        != request.target
        and not group.name.startswith(SHADOW_PREFIX)
    ]
    committed, _ = per_group(context.source.commits_of(others[:_MOST_GROUPS]))
    alike: dict[tuple[str, ...], list[str]] = {}
    for group, offsets in sorted(committed.items()):
        if topics := tuple(sorted({tp.topic for tp in offsets} & ours)):
            alike.setdefault(topics, []).append(group)
    for topics, groups in sorted(alike.items()):
        yield warning(
            "left-out",
            f"{amount(len(groups), 'group')} with offsets of {', '.join(topics)} on "
            f"{request.source} will not move ({some(groups)}): records written after the move "
            f"reach them only as replicas; name groups with --group to move them",
        )


def _left_behind(context: MoveContext, facts: MoveFacts) -> Iterator[Finding]:
    """Warn of groups that the request excludes, and of topics that its named groups do not read."""
    request, source = facts.request, facts.request.source
    if excluded := request.exclude_groups:
        yield warning(
            "left-out",
            f"{amount(len(excluded), 'group')} ({some(excluded)}) excluded: not moved, clients "
            f"remain on {source}, where records written after the move arrive only as replicas",
        )
        known = excluded if request.is_unplanned else context.source.groups()
        if unknown := [one for one in excluded if one not in known]:
            yield warning(
                "left-out",
                f"{amount(len(unknown), 'excluded group')} ({some(unknown)}) unknown on {source}: "
                f"check the names of --exclude-group, a group with another name moves",
            )
    if request.topics or not request.groups:
        return
    everything = topics_to_move(context, request.of_everything, context.target.topics())
    read = {*facts.topics, *(pair.original for pair in facts.pairs)}
    if rest := [topic for topic in everything if topic not in read]:
        yield warning(
            "left-out",
            f"{amount(len(rest), 'topic')} of {request.flow} that the named groups do not read "
            f"({some(rest)}) will not move, with their producers: name topics with --topic to "
            f"move them",
        )


def _limits(context: MoveContext, facts: MoveFacts) -> Iterator[Finding]:
    groups = defaultdict[str, list[str]](list)
    for name in () if facts.is_away else facts.groups:
        groups[facts.source.group(name).kind].append(name)
    groups = groups or defaultdict(list, classic=[])
    source = None if facts.is_away else read_limits(context.source, facts.topics)
    yield from target_limits(source, read_limits(context.target, facts.topics), groups)


def _weaker_copies(context: MoveContext, facts: MoveFacts) -> Iterator[Finding]:
    """Warn of copies that keep less than their source, and no topic sync changes that."""
    config, there = context.forward.config, facts.target.topics
    topics = {
        name: facts.source.topics[name] for name in facts.topics if name in facts.source.topics
    }
    copies = {name: there[name] for name in map(config.names.remote, topics) if name in there}
    settings = context.source.topic_settings(topics), context.target.topic_settings(copies)
    for found in plan_remote_topics(topics, copies, config, *settings).findings:
        yield warning("weaker-copy", f"{found.subject}: {message(found.text, found.action)}")


def _clocks(facts: MoveFacts) -> Iterator[Finding]:
    """Warn of the clocks of clusters, by each host's smallest delay of acknowledgements' stamps."""
    skews: dict[str, int] = {}
    for one in (*facts.routing.on_source, *facts.routing.said_on_target.acks_of_itself):
        where = f"{one.ack.cluster}, seen from {one.ack.host or one.ack.client}"
        skew = one.stamped_ms - one.ack.time_ms - one.ack.ages_ms.get(one.ack.state, 0)
        skews[where] = min(skew, skews.get(where, skew))
    for where, skew in sorted(skews.items()):
        if abs(skew) > _SKEW_MS:
            yield warning(
                "clocks",
                f"the clock of cluster {where}, is {abs(skew) / 1000:.1f} s "
                f"{'ahead' if skew > 0 else 'behind'}: times in reports are the brokers'; "
                f"synchronise the clocks",
            )


def _transaction_logs(facts: MoveFacts) -> Iterator[Finding]:
    """Find logs of transactions that cannot write the move, or that a frozen broker would stop."""
    for side in (facts.target,) if facts.is_away else (facts.source, facts.target):
        if (log := side.topics.get(internal_topics.TRANSACTIONS)) is None:
            continue
        number = internal_topics.partition_of(CONTROL_ID, log.partitions)
        if brokers := log.leaderless.get(number):
            yield problem(
                "no-coordinator",
                f"{log.name}-{number} of {side.alias} has no leader, so no move can be written "
                f"there: start broker {' or '.join(map(str, brokers))}",
            )
        most = max((topic.replicas for topic in side.topics.values()), default=0)
        if log.replicas == 1 < most:
            yield warning(
                "transaction-log",
                f"topic {log.name} of cluster {side.alias} has one replica: a frozen "
                f"broker can publish the decision of a move after the clients' leases expired; "
                f"raise it to 3 replicas with kafka-reassign-partitions.sh",
            )
