"""Several clusters with a topic and a group on each, whose clients follow moves between them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.unit.engine.moves.control.moving import World, config_in

from srm.client.routing import RoutingWatcher
from srm.domain.flow_state.replication_records import PartitionPosition, SlotReport
from srm.domain.moves.announcements import Ack
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.offset_map.offset_map import Position
from srm.engine.cluster_ports import away_cluster
from srm.engine.moves.context import MoveContext, ensure_topics
from srm_lab.testing.fake_switch import FakeSwitch

NAMES = "ABC"
SUBJECTS = ("topic:Payments", "group:audit")


def world_of(home: Path, *flows: str, names: str = NAMES) -> World:
    """Return clusters with a topic and a group on each; each flow is enabled both ways."""
    lines = [f"clusters = {', '.join(names)}", "topics = Payments.*", "groups = .*"]
    lines += [f"{alias}.bootstrap.servers = {alias.lower()}:9092" for alias in names]
    both = [end for flow in flows for end in (flow, flow[::-1])]
    lines += [f"{end[0]}->{end[1]}.enabled = true" for end in both]
    world = World(config_in(home, "\n".join(lines)), aliases=tuple(names))
    for alias in names:
        world.clusters[alias].produce("Payments", records=10)
    for end in both:
        ensure_topics(world.context(end[0], end[1]))
        world.copy(end[0], end[1])
    return world


def watching(world: World, home: str, order: str = "") -> RoutingWatcher:
    """Return what a client at home on a cluster knows that reads the others in an order."""
    watcher = RoutingWatcher(world.config, home)
    for alias in order or world.clusters:
        routing = world.clusters[alias].compacted_topic(internal_topics.ROUTING)
        watcher._take(routing.read().items(), alias)
    return watcher


def announce(world: World) -> None:
    """Let a client of each home and subject say on every cluster where it works."""
    for home in world.clusters:
        watcher = watching(world, home)
        for subject in SUBJECTS:
            route = watcher.route(subject)
            ack = Ack(
                *(subject, f"client-{home}", route.generation),
                *("held" if route.state == "hold" else "resumed", route.cluster, world.clock()),
                home=home,
            )
            for each in world.clusters.values():
                each.compacted_topic(internal_topics.CLIENTS).write({ack.key(): ack.value()})


def without(world: World, source: str, target: str) -> MoveContext:
    """Return the context of an unplanned move from a cluster that does not answer."""
    lasting, records = world.clusters[target], world.clusters[source].topics()
    for topic, partitions in ((internal_topics.replication, 2), (internal_topics.checkpoints, 1)):
        if topic(source) not in lasting.topics():
            lasting.add_topic(topic(source), partitions)
    place = TopicPartition("Payments", 0)
    end = world.clusters[source].log_ends([place])[place]
    copied = (records["Payments"].topic_id, 0, lasting.topics()[f"{source}.Payments"].topic_id)
    entry = PartitionPosition(*copied, Position(end, end + 1, end), 1, 0)
    report = SlotReport("0", 1, world.clock(), (entry,), source_heard_ms=world.clock())
    world.maps[Flow(source, target)].reports = (report,)
    whole, gone = world.context(source, target), away_cluster(source)
    return replace(
        whole,
        forward=replace(whole.forward, source=gone, switch=FakeSwitch(lasting, source)),
        reverse=replace(whole.reverse, target=gone),
    )
