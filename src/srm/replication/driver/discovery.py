"""One round of discovery: the partitions that a flow copies now, and their remote topics."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from srm.config.model import FlowConfig
from srm.domain.flow_state.replication_records import STATE_PARTITIONS, AssignedPartition
from srm.domain.flow_state.replication_state import CopiedTopic, GoneTopics
from srm.domain.names import internal_topics
from srm.domain.names.topics import TopicPartition
from srm.domain.offset_map.map_records import MAP_PARTITIONS
from srm.domain.text.amount import grant
from srm.engine.cluster_ports import Cluster, TopicDescription, Topics, TopicSpec
from srm.engine.control import control_lists
from srm.engine.control.control_lists import ControlLists
from srm.engine.control.control_topics import (
    CLIENTS_TOPICS,
    CONTROL_TOPICS,
    STAMPED,
    compacted_spec,
    create_control_topics,
)
from srm.engine.control.recorded_copies import copies_of_others, with_recorded
from srm.engine.control.topic_sync import plan_remote_topics
from srm.engine.flows.target_topics import assignments, raw_metrics_spec
from srm.engine.groups.checkpoints import forget_topics
from srm.engine.groups.ledger import is_hidden
from srm.engine.ports import FlowContext
from srm.errors import AuthorizationError, SrmError

logger = logging.getLogger(__name__)

_REST: Final = 100.0  # times what a close look took, until the next one
_LONGEST_REST_S: Final = 5.0
_SHORTEST_REST: Final = 20.0  # times what a look took that takes long
GONE_S: Final = 300.0
_LOOKS: Final = 3


@dataclass(frozen=True, slots=True)
class _Seen:
    lists: ControlLists
    source: Mapping[str, int]
    target: Mapping[str, int]

    @classmethod
    def of(cls, context: FlowContext, before: _Seen | None) -> _Seen:
        source, target = context.source.partition_counts(), context.target.partition_counts()
        topic = internal_topics.control(context.config.flow.source)
        if before is None or topic in target or topic in before.target:
            return cls(control_lists.load(context.target, context.config.flow), source, target)
        return cls(before.lists, source, target)


@dataclass(frozen=True, slots=True)
class Discovered:
    """Partitions a flow copies now, and cluster ids; ``pending``: not ready on the target."""

    partitions: tuple[AssignedPartition, ...] = ()
    pending: tuple[str, ...] = ()
    source_cluster: str = ""
    target_cluster: str = ""


@dataclass(eq=False)
class Discovery:
    """Discovery of one flow, by the settings in ``context``."""

    context: FlowContext
    clock: Callable[[], float] = time.monotonic
    _expected: Collection[str] = ()
    _last: dict[str, set[str]] = field(default_factory=dict)
    _seen: _Seen | None = None
    _found: Discovered = Discovered()
    _look_closely_at: float = 0.0
    _sides: tuple[Side, Side] | None = None
    _gone: GoneTopics = field(default_factory=GoneTopics)

    def __post_init__(self) -> None:
        self._watch = GoneWatch(self.clock)

    def take(self, configured: FlowConfig) -> None:
        self.context, self._seen = replace(self.context, config=configured), None

    def prepare(self) -> None:
        target, config = self.context.target, self.context.config
        specs, _ = internal_topic_specs(config)
        existing = target.topics()
        _create_missing(target, specs, existing)
        state = internal_topics.replication(config.flow.source)
        if state in existing and existing[state].partitions < STATE_PARTITIONS:
            logger.info("%s: %s gets a partition for reports", target.alias, state)
            target.create_partitions({state: STATE_PARTITIONS})
        for cluster, wanted in ((target, CONTROL_TOPICS), (self.context.source, CLIENTS_TOPICS)):
            try:
                made = create_control_topics(cluster, config.internal_replication_factor, wanted)
            except SrmError as error:
                text = "the topics of moves and routes cannot be created; clients that follow"
                level = logging.WARNING if cluster is target else logging.INFO  # may be read-only
                wait = "routes are unknown until the first move"
                logger.log(level, "%s: %s %s: %s", cluster.alias, text, wait, error)
            else:
                if made:
                    logger.info("%s: creating %s", cluster.alias, ", ".join(made))

    def round(self) -> Discovered:
        """Find the flow's topics, create missing remote topics, and return what can be copied.

        Topic ids are expensive to fetch. While lists, names and partition counts do not change,
        they are fetched only so often that it takes little of a core: re-creation shows late. So
        does the end of a refusal: one bad topic of thousands makes no look closer.
        """
        began = self.clock()
        before = self._seen if began < self._look_closely_at else None
        seen = _Seen.of(self.context, before)
        if seen == before:
            return self._found
        found, last = self._look_closely(seen.lists), self._found
        self._found = found
        self._seen = seen if found.pending == last.pending or not found.pending else None
        took_s = self.clock() - began
        rest_s = max(took_s * _SHORTEST_REST, min(took_s * _REST, _LONGEST_REST_S))
        self._look_closely_at = began + rest_s
        return self._found

    def _look_closely(self, lists: ControlLists) -> Discovered:
        context, flow = self.context, self.context.config.flow
        settings = control_lists.effective(context.config, lists)
        if not settings.names.keeps_name("topic"):
            # Topics that the opposite flow copies under their names do not go back.
            settings = with_recorded(settings, context.source, context.target)
        context = replace(context, config=settings)
        source_topics, target_topics = context.source.topics(), context.target.topics()
        self._sides = _side(context.source, source_topics), _side(context.target, target_topics)
        source_id, target_id = (side.cluster_id for side in self._sides)
        ensure_offset_syncs(context, source_topics, target_topics)
        self._report_unnamed(settings, source_topics)
        names = self._without_second_writer(context, source_topics, target_topics)
        self._report_hidden(context, names)
        selected = tuple(source_topics[name] for name in names)
        if lacking := outgrown(selected, target_topics, settings):
            wanted = {name: source_topics[name] for name in lacking}
            refused = _create_remote_topics(context, wanted, target_topics)
            for text in self._news("refused", refused):  # each round tries again
                logger.warning("%s: %s", flow, text)
            target_topics = context.target.topics()
        found = assignable(selected, target_topics, settings)
        return replace(found, source_cluster=source_id, target_cluster=target_id)

    def _without_second_writer(
        self, context: FlowContext, source_topics: Collection[str], target_topics: Collection[str]
    ) -> tuple[str, ...]:
        """Select the flow's topics, less those that an unknown flow copies into by kept names."""
        names, selected = context.config.names, context.config.names.select(source_topics)
        kept = frozenset(filter(names.keeps_name, selected))
        taken = kept
        if kept:
            now_ms = context.now_ms()
            taken &= copies_of_others(context.target, target_topics, context.config, now_ms)
        text = (
            "%s: not copied: %s of %s is the copy of a flow that is not joined with this one; "
            "name both flows, and the topic for both, in one configuration"
        )
        for name in self._news("taken", taken):
            logger.warning(text, context.config.flow, name, context.config.flow.target)
        return tuple(name for name in selected if name not in taken)

    def find_deleted(self, copied: Collection[CopiedTopic]) -> GoneTopics:
        """Return which copied topics are deleted, as far as the latest close checks show."""
        if self._sides is not None:
            self._gone = self._watch.look(copied, *self._sides)
            self._sides = None  # each look counts once
        return self._gone

    def forget(self, topics: Collection[CopiedTopic]) -> None:
        """Delete places of groups in gone topics on both sides; a source may refuse that."""
        flow, context, gone = self.context.config.flow, self.context, self._gone
        for cluster, origin, ids in (
            (context.target, flow.source, gone.target & {t.target_topic_id for t in topics}),
            (context.source, flow.target, gone.source & {t.topic_id for t in topics}),
        ):
            try:
                if ids:
                    name = internal_topics.checkpoints(origin, context.config.policy.separator)
                    forget_topics(cluster, name, ids, context.now_ms())
            except AuthorizationError as error:
                text = "%s: offsets of groups in deleted topics cannot be removed: %s"
                logger.warning(text, flow, error)

    def target_ends(self, copied: Collection[AssignedPartition]) -> dict[AssignedPartition, int]:
        names = {p: TopicPartition(p.target_topic, p.partition) for p in copied}
        ends = self.context.target.log_ends(names.values()) if names else {}
        return {assigned: ends[name] for assigned, name in names.items() if name in ends}

    def _report_unnamed(self, config: FlowConfig, topics: Collection[str]) -> None:
        unnamed = [one for one in topics if config.names.refusal(one) == "taken"]
        for name in self._news("unnamed", unnamed):
            text = "%s: %s is not copied: its copy has the name of another topic's, see srm why %s"
            logger.warning(text, config.flow, name, name)

    def _report_hidden(self, context: FlowContext, names: Collection[str]) -> None:
        flow, named = context.config.flow, context.config.names.listed.names
        wanted = named.union(self._expected).difference(names)
        hidden = {name for name in wanted if is_hidden(context.source, name)}
        for name in self._news("hidden", hidden):
            logger.warning("%s: %s is not copied: %s", flow, name, grant("Read", name, flow.source))
        self._expected = hidden.union(names)

    def _news(self, kind: str, names: Iterable[str]) -> list[str]:
        """Return the names of a kind that the last round did not have."""
        last, self._last[kind] = self._last.get(kind, set()), {*names}
        return sorted(self._last[kind] - last)


def _side(cluster: Cluster, topics: Topics) -> Side:
    return Side(cluster.cluster_id(), topics, partial(is_hidden, cluster))


def outgrown(
    selected: Iterable[TopicDescription], remotes: Topics, config: FlowConfig
) -> tuple[str, ...]:
    return tuple(
        topic.name
        for topic in selected
        if (remote := remotes.get(config.names.remote(topic.name))) is None
        or remote.partitions < topic.partitions
    )


def assignable(
    selected: Collection[TopicDescription], remotes: Topics, config: FlowConfig
) -> Discovered:
    partitions = tuple(
        assigned
        for topic in selected
        if (remote := remotes.get(config.names.remote(topic.name))) is not None
        for assigned in assignments(topic, remote)
    )
    return Discovered(partitions, outgrown(selected, remotes, config))


def _create_remote_topics(context: FlowContext, wanted: Topics, remotes: Topics) -> list[str]:
    """Create and grow remote topics, and return what went wrong; topic sync has their settings."""
    settings = context.source.topic_settings(tuple(wanted))
    plan = plan_remote_topics(wanted, remotes, context.config, settings)
    failures = []
    for step in (
        partial(context.target.create_topics, plan.create),
        partial(context.target.create_partitions, plan.grow),
    ):
        try:
            step()
        except SrmError as error:
            failures.append(str(error))
    return failures


def internal_topic_specs(config: FlowConfig) -> tuple[Sequence[TopicSpec], TopicSpec | None]:
    """Return the internal topics of the flow on its target, and its offset syncs topic."""
    flow, own = config.flow, config.internal_replication_factor
    on_target = [
        compacted_spec(internal_topics.replication(flow.source), own, STATE_PARTITIONS),
        compacted_spec(internal_topics.offset_map(flow.source), own, MAP_PARTITIONS),
        raw_metrics_spec(config),
        compacted_spec(internal_topics.HEARTBEATS, config.heartbeats_replication_factor),
    ]
    if config.emit_checkpoints_enabled:
        spec = compacted_spec(config.checkpoints_topic, config.checkpoints_replication_factor)
        on_target.insert(-1, replace(spec, configs={**spec.configs, **STAMPED}))
    if not config.emit_offset_syncs_enabled:
        return on_target, None
    other = flow.target if config.offset_syncs_location == "source" else flow.source
    name = internal_topics.offset_syncs(other, config.policy.separator)
    return on_target, compacted_spec(name, config.offset_syncs_replication_factor)


def ensure_offset_syncs(context: FlowContext, source_topics: Topics, target_topics: Topics) -> None:
    """Create the flow's offset syncs topic where ``offset-syncs.topic.location`` wants it.

    It is on the target where the source only lets us read.
    """
    _, offset_syncs = internal_topic_specs(context.config)
    if offset_syncs is None:
        return
    if context.config.offset_syncs_location == "target":
        _create_missing(context.target, (offset_syncs,), target_topics)
        return
    try:
        _create_missing(context.source, (offset_syncs,), source_topics)
    except AuthorizationError as error:
        config = context.config
        name = internal_topics.offset_syncs(config.flow.source, config.policy.separator)
        if name not in target_topics:
            logger.warning(
                "%s: offset syncs go to %s on %s, because %s on %s cannot be created: %s",
                config.flow,
                name,
                config.flow.target,
                offset_syncs.name,
                config.flow.source,
                error,
            )
        try:
            _create_missing(context.target, (replace(offset_syncs, name=name),), target_topics)
        except AuthorizationError as second:
            raise AuthorizationError(
                f"offset syncs cannot be written: {error}; {second}"
            ) from error


def _create_missing(cluster: Cluster, specs: Collection[TopicSpec], known: Collection[str]) -> None:
    missing = [spec for spec in specs if spec.name not in known]
    if missing:
        logger.info("%s: creating %s", cluster.alias, ", ".join(spec.name for spec in missing))
        cluster.create_topics(missing)


@dataclass(frozen=True, slots=True)
class Side:
    """One cluster at one moment, and the check for topics that it hides from srm."""

    cluster_id: str
    topics: Topics
    is_hidden: Callable[[str], bool]


@dataclass(slots=True)
class _Missed:
    since_s: float
    looks: int = 0


@dataclass(eq=False)
class GoneWatch:
    """Takes a topic for gone once its id was missing for :data:`GONE_S`, in several looks.

    A topic whose name has another id now was deleted; one whose name has none may be hidden.
    """

    clock: Callable[[], float]
    _missed: dict[tuple[str, str], _Missed] = field(default_factory=dict)

    def look(self, known: Collection[CopiedTopic], source: Side, target: Side) -> GoneTopics:
        sources = {t.topic_id: (t.topic, t.source_cluster) for t in known}
        targets = {t.target_topic_id: (t.target_topic, t.target_cluster) for t in known}
        ids = sources.keys() | targets.keys()
        self._missed = {key: missed for key, missed in self._missed.items() if key[1] in ids}
        return GoneTopics(
            self._deleted_since("source", sources, source),
            self._deleted_since("target", targets, target),
        )

    def _deleted_since(
        self, name: str, known: Mapping[str, tuple[str, str]], side: Side
    ) -> frozenset[str]:
        now = self.clock()
        present = {topic.topic_id for topic in side.topics.values()}
        gone = set()
        for topic_id, (topic, cluster_id) in known.items():
            if topic_id in present or cluster_id != side.cluster_id:
                self._missed.pop((name, topic_id), None)
                continue
            missed = self._missed.setdefault((name, topic_id), _Missed(now))
            missed.looks += 1
            if (
                missed.looks >= _LOOKS
                and now - missed.since_s >= GONE_S
                and (topic in side.topics or not side.is_hidden(topic))
            ):
                gone.add(topic_id)
        return frozenset(gone)
