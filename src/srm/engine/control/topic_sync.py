"""Keep the remote topics of a flow like their sources: existence, partitions, settings, ACLs.

A sync does what only adds, or follows the source's settings. A plan shows all differences, those
that stay included; nothing is deleted but ACLs, where an operator applies a plan with that choice.

Rules of MM2's MirrorSourceConnector: same partition count, grown but never shrunk; settings that
the source sets, less the excluded ones; ACLs that are only added. Other differences are findings,
such as quotas and SCRAM users. Where several flows use one name, settings and ACLs stay as they
are, and the copy has the most partitions.

ACLs on selected topics apply to their remote topics. ``Allow Write`` stays where it is, since only
the replicator writes to a copy, and ``Allow All`` becomes ``Allow Read``. A rule that could stop
the replicator, or that the opposite flow carries too, is a finding instead.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from srm.config.model import FlowConfig
from srm.domain.flow_state.replication_records import (
    STATE_PARTITIONS,
    AssignedPartition,
    PartitionNotes,
)
from srm.domain.flow_state.replication_state import decode_state, positions_by_copy
from srm.domain.names import internal_topics
from srm.domain.names.rights import ANY_NAME, Acl, write_denial, writers_of
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.text.amount import amount, some
from srm.engine.cluster_ports import Cluster, QuotaEntity, Topics, TopicSetting, TopicSpec
from srm.engine.control.control_topics import ensure_compacted
from srm.engine.flows.supervision import pause_in_force, state_topic
from srm.engine.flows.target_topics import assignments
from srm.engine.ports import FlowContext
from srm.errors import AuthorizationError, ConfigError, NotFoundError, SrmError
from srm.logs import warn_once

logger = logging.getLogger(__name__)

OfTopic = Mapping[str, TopicSetting]
"""Settings in effect of one topic, by name."""
Settings = Mapping[str, OfTopic]
"""Settings in effect by topic."""
Changes = Mapping[str, str | None]
"""Settings to change; None deletes an override."""


@dataclass(frozen=True, slots=True)
class SyncFinding:
    """A difference between the clusters that a sync does not remove; ``action`` is the remedy."""

    subject: str
    text: str
    action: str = ""


@dataclass(frozen=True)
class TopicSyncPlan:
    """Changes to make on a flow's target, by name of the remote topic.

    ``surplus``: (source's, target's) partition counts; Kafka cannot shrink a topic.
    ``surplus_acls``: ACLs that the source does not account for; a sync keeps them.
    ``left``: settings of their sources that new topics do not get, see config.properties.exclude.
    ``findings``: differences that stay.
    ``notes``: what could not be compared, and why.
    """

    create: tuple[TopicSpec, ...] = ()
    grow: Mapping[str, int] = field(default_factory=dict)
    configs: Mapping[str, Changes] = field(default_factory=dict)
    surplus: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    acls: tuple[Acl, ...] = ()
    surplus_acls: tuple[Acl, ...] = ()
    left: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    findings: tuple[SyncFinding, ...] = ()
    notes: tuple[str, ...] = ()
    selected: int = 0
    skipped: str = ""

    @property
    def is_empty(self) -> bool:
        return not (self.create or self.grow or self.configs or self.acls)

    def differences(self, flow: Flow) -> Iterator[SyncFinding]:
        """Yield all that differs and that a sync leaves as it is."""
        for name, (here, there) in self.surplus.items():
            yield SyncFinding(name, f"has {there} partitions, its source has {here}")
        for acl in self.surplus_acls:
            action = f"srm topics apply --flow '{flow}' --remove-acls"
            yield SyncFinding(acl.subject, f"surplus ACL: {acl.rule}", action)
        yield from self.findings


def plan_remote_topics(
    source_topics: Topics,
    target_topics: Topics,
    flow_config: FlowConfig,
    source_settings: Settings,
    target_settings: Settings | None = None,
) -> TopicSyncPlan:
    """Plan topics, partitions and settings.

    Without ``target_settings``, or where sync.topic.configs.enabled is false, settings of existing
    topics are not changed.
    """
    defaults = {
        name: one
        for settings in (target_settings or {}).values()
        for name, one in settings.items()
        if one.origin != "topic"
    }
    create, findings = list[TopicSpec](), list[SyncFinding]()
    grow, surplus = dict[str, int](), dict[str, tuple[int, int]]()
    configs: dict[str, Changes] = {}
    left: dict[str, dict[str, str]] = {}
    selected = flow_config.names.select(source_topics)
    for name in selected:
        remote = flow_config.names.remote(name)
        here = source_settings.get(name, {})
        partitions = source_topics[name].partitions
        found = target_topics.get(remote)
        if found is None:
            wanted = _settings_to_copy(name, here, flow_config)
            create.append(TopicSpec(remote, partitions, flow_config.replication_factor, wanted))
            own = {name: one.value for name, one in here.items() if one.origin == "topic"}
            left[remote] = {name: own[name] for name in sorted(own.keys() - wanted.keys())}
            there = defaults | {name: TopicSetting(value) for name, value in wanted.items()}
            findings += _weaker_settings((name, here), (remote, there), {}, flow_config)
            continue
        if found.partitions < partitions:
            grow[remote] = partitions
        elif found.partitions > partitions and not flow_config.joins(name):
            surplus[remote] = (partitions, found.partitions)
        if target_settings is not None and remote in target_settings:
            there, is_synced = {**target_settings[remote]}, flow_config.sync_topic_configs_enabled
            changes = _differences(name, here, there, flow_config) if is_synced else {}
            if changes and flow_config.shares(name):
                findings += _disagreements(name, here, there, changes, flow_config)
            elif changes:
                configs[remote] = changes
            findings += _weaker_settings((name, here), (remote, there), changes, flow_config)
    findings += _orphans(source_topics, target_topics, flow_config)
    return TopicSyncPlan(
        *(tuple(create), grow, configs, surplus),
        left=left,
        findings=tuple(findings),
        selected=len(selected),
    )


def _without_excluded(settings: OfTopic, config: FlowConfig) -> dict[str, TopicSetting]:
    copied = config.config_property_filter((".*",), config.config_properties_exclude)
    return {name: one for name, one in sorted(settings.items()) if copied.matches(name)}


def _settings_to_copy(topic: str, here: OfTopic, config: FlowConfig) -> dict[str, str]:
    """Return what the copy is to set; of a source's broker file only a size, for headers of srm."""
    origins = {"topic", "dynamic"}
    if config.use_defaults_from == "source":
        origins.add("default")
    candidates = _without_excluded(here, config)
    found = {name: one.value for name, one in candidates.items() if one.origin in origins}
    # Flows that share a name get no room for headers: each would set more than the other.
    adds_headers = config.records.provenance or config.records.source_offsets
    if adds_headers and MAX_SIZE in candidates and not config.shares(topic):
        found[MAX_SIZE] = str(min(int(here[MAX_SIZE].value) + 1024, 2**31 - 1))
    return found


def _differences(topic: str, here: OfTopic, there: OfTopic, config: FlowConfig) -> Changes:
    own = {name: one.value for name, one in there.items() if one.origin == "topic"}
    wanted = _settings_to_copy(topic, here, config)
    changes: dict[str, str | None] = {
        name: value
        for name, value in wanted.items()
        if own.get(name) != value
        and (here[name].origin != "default" or name in there)  # known to the target's release
    }
    unset = _without_excluded(here, config).keys() & own.keys() - wanted.keys()
    return changes | {name: None for name in sorted(unset) if here[name].origin == "default"}


def _disagreements(
    topic: str, here: OfTopic, there: OfTopic, changes: Changes, config: FlowConfig
) -> Iterator[SyncFinding]:
    source, target = config.flow.source, config.flow.target
    for name, value in changes.items():
        mine = f"{here[name].value}{' by default' if value is None else ''}"
        other = there[name].value if name in there else "not set"
        text = f"{name} is {other} on {target} and {mine} on {source}, other flows use it, too"
        yield SyncFinding(topic, text, f"set one value on {source} and {target}")


def _less(here: str, there: str) -> bool:
    """Compare limits; -1 of retention is none."""
    return int(there) >= 0 and (int(here) < 0 or int(there) < int(here))


MAX_SIZE: Final = "max.message.bytes"
_WEAKER: Final[Mapping[str, Callable[[str, str], bool]]] = {
    "retention.ms": _less,
    "retention.bytes": _less,
    "min.insync.replicas": _less,
    MAX_SIZE: _less,
    "message.timestamp.type": lambda here, there: here != there == "LogAppendTime",
}
"""Values of a copy that keep less than its source, refuse its records or change their times."""


def _weaker_settings(
    source: tuple[str, OfTopic], target: tuple[str, OfTopic], changes: Changes, config: FlowConfig
) -> Iterator[SyncFinding]:
    """Yield values in effect that stay weaker on the target; retention only where it deletes."""
    (topic, here), (remote, there) = source, target
    deletes = "delete" in there.get("cleanup.policy", TopicSetting("delete")).value
    candidates = _without_excluded(here, config)
    for name, is_weaker in _WEAKER.items():
        if name in changes or not (name in here and name in there):
            continue
        if name.startswith("retention.") and not deletes:
            continue
        mine, other = here[name].value, there[name].value
        if is_weaker(mine, other):
            action = f"set {name}={mine} on {remote} of {config.flow.target}"
            copied = name in candidates and config.sync_topic_configs_enabled
            if copied and not config.shares(topic):
                action = f"set it on {topic} of {config.flow.source}, or use.defaults.from = source"
            text = f"{name} is {other}, on {topic} of {config.flow.source} {mine}"
            yield SyncFinding(remote, text, action)


def _orphans(source: Topics, target: Topics, config: FlowConfig) -> Iterator[SyncFinding]:
    """Yield remote topics of the flow whose source topic does not exist; srm never deletes them."""
    for remote in sorted(target):
        upstream = config.names.original(remote)
        if upstream is None or upstream in source:
            continue
        if config.names.selects(upstream) and not config.joins(upstream):
            text = f"{config.flow.source} has no topic {upstream}"
            yield SyncFinding(remote, text, "delete it once no group needs it")


_OWN_NAMES: Final = ("srm-", "__srm-")
"""Prefixes of srm's transactional ids and topics."""
_CONSUMING: Final = frozenset({"Read", "Describe", "DescribeConfigs"})
"""Operations whose denial does not keep the replicator from writing."""


def plan_acls(
    plan: TopicSyncPlan,
    here: Collection[Acl],
    there: Collection[Acl],
    source_topics: Collection[str],
    config: FlowConfig,
    *,
    written: bool = False,
) -> TopicSyncPlan:
    """Add the ACLs of the source (``here``) that the target (``there``) lacks to a plan.

    ``written``: the topics are for producers, who keep their right to write.

    ACLs of principals that write to a remote topic, as replicators do, are not surplus. A prefix
    counts if one of the ``source_topics`` has it and is selected.
    """
    names = config.names
    selected = names.select(source_topics)
    wanted: set[Acl] = set()
    add: set[Acl] = set()
    findings: dict[SyncFinding, None] = {}
    for acl in sorted(here):
        copies = frozenset(_copies(acl, selected, config, written=written))
        wanted |= copies
        for copy in copies.difference(there):
            if acl in there and acl.covers(copy.resource, copy.name):
                continue
            if finding := _refusal(acl, copy, config):
                findings[finding] = None
            else:
                add.add(copy)
    remote = {names.remote(topic) for topic in selected if not config.shares(topic)}
    surplus = (
        acl
        for acl in there
        if (acl.resource, acl.pattern) == ("topic", "literal")
        and acl.name in remote
        and acl not in wanted
        and acl != write_denial(acl.name)
        and acl.principal not in writers_of(acl.name, there)
    )
    return replace(
        plan,
        acls=tuple(sorted(add)),
        surplus_acls=tuple(sorted(surplus)),
        findings=(*plan.findings, *findings),
    )


def _copies(
    acl: Acl, selected: Collection[str], config: FlowConfig, *, written: bool
) -> Iterator[Acl]:
    included = config.sync_acls_include
    named = acl.pattern == "literal" and acl.name != ANY_NAME
    if acl.resource == "topic":
        is_fence = named and acl == write_denial(acl.name)  # it would shut out the replicator
        if acl.permission == "Allow" and acl.operation == "All" and not written:
            acl = replace(acl, operation="Read")
        if not is_fence and (written or (acl.permission, acl.operation) != ("Allow", "Write")):
            yield from _on_remote_topics(acl, selected, config)
    elif acl.resource == "group":
        groups = config.group_names
        if "groups" in included and (groups.matches(acl.name) if named else bool(config.groups)):
            yield acl
    elif "transactional-ids" in included and not acl.name.startswith(_OWN_NAMES):
        yield acl


def _on_remote_topics(acl: Acl, selected: Collection[str], config: FlowConfig) -> Iterator[Acl]:
    names, everything = config.names, acl.name == ANY_NAME and acl.pattern == "literal"
    if acl.pattern == "literal" and not everything:
        if names.selects(acl.name):
            yield replace(acl, name=names.remote(acl.name))
        return
    if "prefixed" not in config.sync_acls_include:
        return
    prefix = "" if everything else acl.name
    covered = [names.remote(topic) for topic in selected if topic.startswith(prefix)]
    pattern = names.remote(prefix)
    if covered and pattern != prefix and all(name.startswith(pattern) for name in covered):
        yield replace(acl, name=pattern, pattern="prefixed")
    else:  # the pattern would cover topics of the target's own
        yield from (replace(acl, name=name, pattern="literal") for name in covered)


def _refusal(acl: Acl, copy: Acl, config: FlowConfig) -> SyncFinding | None:
    source, target = config.flow.source, config.flow.target
    if copy.permission == "Deny" and copy.operation not in _CONSUMING:
        why, action = "it could stop srm there", f"add it on {target} where it does not deny srm"
    elif copy.resource != "group" and _covers_own_names(copy):
        why, action = "it covers names of srm", f"add it on {target} for narrower names"
    elif config.both_enabled and (copy.resource != "topic" or config.shares(copy.name)):
        why = "both flows use this name"
        action = f"add it on {target}, or remove it on {source}"
    else:
        return None
    return SyncFinding(acl.subject, f"{acl.rule} is on {source} only, {why}", action)


def _covers_own_names(acl: Acl) -> bool:
    if acl.pattern == "literal":
        return acl.name == ANY_NAME
    return any(own.startswith(acl.name) or acl.name.startswith(own) for own in _OWN_NAMES)


_T = TypeVar("_T")
_Quotas = Mapping[QuotaEntity, Mapping[str, float]]


def compare_users(plan: TopicSyncPlan, source: Cluster, target: Cluster) -> TopicSyncPlan:
    """Add differences, and what srm may not compare or the brokers are too old for, to a plan."""
    findings, notes = [*plan.findings], [*plan.notes]

    def read(what: str, call: Callable[[Cluster], _T]) -> tuple[_T, _T] | None:
        try:
            return call(source), call(target)
        except (AuthorizationError, ConfigError) as error:
            notes.append(f"{what} are not compared: {error}")
            return None

    if limits := read("quotas", lambda cluster: cluster.quotas()):
        findings += _quota_drift(*limits, source.alias, target.alias)
    if users := read("SCRAM users", lambda cluster: cluster.scram_users()):
        missing = sorted(users[0] - users[1])
        if missing:
            verb = "exists" if len(missing) == 1 else "exist"
            text = f"{amount(len(missing), 'SCRAM user')} {verb} only on {source.alias}: "
            action = f"create them on {target.alias} before clients move"
            findings.append(SyncFinding("users", text + some(missing), action))
    return replace(plan, findings=tuple(findings), notes=tuple(dict.fromkeys(notes)))


def _quota_drift(here: _Quotas, there: _Quotas, source: str, target: str) -> Iterator[SyncFinding]:
    for entity in sorted({*here, *there}, key=_name):
        mine, other = here.get(entity, {}), there.get(entity, {})
        for limit in sorted({*mine, *other}):
            if mine.get(limit) != other.get(limit):
                text = f"{limit} is {_text(mine.get(limit))} on {source}, "
                text += f"{_text(other.get(limit))} on {target}"
                yield SyncFinding(f"quota of {_name(entity)}", text, "kafka-configs.sh changes it")


def _name(entity: QuotaEntity) -> str:
    return ", ".join(f"{kind} {name or '(default)'}" for kind, name in entity)


def _text(limit: float | None) -> str:
    return "not set" if limit is None else f"{limit:.15g}"


_SAMPLES: Final = 3
"""Other topics of the target, whose settings show the defaults of its brokers."""


def plan(context: FlowContext) -> TopicSyncPlan:
    """Compare topics, settings, ACLs, quotas and users of a flow's clusters; change nothing."""
    found = _look(context)
    return found if found.skipped else compare_users(found, context.source, context.target)


def sync(
    context: FlowContext, *, dry_run: bool = False, todo: set[str] | None = None
) -> TopicSyncPlan:
    """Create, grow and configure the remote topics of a flow and add ACLs; return that plan.

    ``todo``: remote topics that failed; with any, only those are compared. A sync leaves its own.
    """
    todo = set() if todo is None else todo
    found = _look(context, todo)
    todo |= {*(spec.name for spec in found.create), *found.grow, *found.configs}
    for note in found.notes:
        warn_once(logger, f"{context.config.flow}: {note}")
    if found.skipped:
        logger.warning("%s", found.skipped)
    elif not dry_run:
        apply(context, found)
    todo.clear()
    return found


def _look(context: FlowContext, todo: Collection[str] = ()) -> TopicSyncPlan:
    config = context.config
    # A rebuilt source has other settings at first: a shorter retention could delete the only copy.
    if pause_in_force(context) is not None:
        skipped = f"{config.flow} is paused: its topics are synced when it resumes"
        return TopicSyncPlan(skipped=skipped)
    source_topics, target_topics = context.source.topics(), context.target.topics()
    remote_of = config.names.remote
    if todo:
        source_topics = {n: one for n, one in source_topics.items() if remote_of(n) in todo}
    selected = config.names.select(source_topics)
    remote = set(map(remote_of, selected))
    here = context.source.topic_settings(selected)
    there = dict(context.target.topic_settings(sorted(remote & target_topics.keys())))
    with suppress(AuthorizationError):
        there |= context.target.topic_settings(sorted(target_topics.keys() - remote)[:_SAMPLES])
    found = plan_remote_topics(source_topics, target_topics, config, here, there)
    if todo or not config.sync_topic_acls_enabled:
        return found
    try:
        return with_acls(found, context.source, context.target, source_topics, config)
    except (AuthorizationError, ConfigError) as error:
        why = f"ACLs are not synced: {error}; or set sync.topic.acls.enabled = false"
        return replace(found, notes=(why,))


def with_acls(
    found: TopicSyncPlan,
    source: Cluster,
    target: Cluster,
    source_topics: Collection[str],
    config: FlowConfig,
    *,
    written: bool = False,
) -> TopicSyncPlan:
    """Read the ACLs of both clusters for :func:`plan_acls`; ConfigError without an authorizer."""
    rules = source.acls()
    if reason := target.no_fence_reason():
        raise ConfigError(reason)
    return plan_acls(found, rules, target.acls(), source_topics, config, written=written)


def apply(context: FlowContext, planned: TopicSyncPlan, remove_acls: Collection[Acl] = ()) -> None:
    """Carry out a plan, removing only ``remove_acls`` of its surplus ACLs.

    A topic that fails does not stop the others; the error after all steps names all failures.
    """
    target = context.target
    steps: tuple[tuple[str, Collection[Any], Callable[[Any], None]], ...] = (
        ("creating topics", planned.create, target.create_topics),
        ("adding partitions", planned.grow, target.create_partitions),
        ("changing settings", planned.configs, target.alter_topic_configs),
        ("adding ACLs", planned.acls, target.create_acls),
        ("removing ACLs", remove_acls, target.delete_acls),
    )
    failures: list[tuple[str, SrmError]] = []
    for what, wanted, step in steps:
        try:
            if wanted:
                step(wanted)
        except SrmError as error:
            failures.append((what, error))
    if failures:
        text = "; ".join(f"{what}: {error}" for what, error in failures)
        raise type(failures[0][1])(f"topic sync of {context.config.flow}: {text}")


def append(
    context: FlowContext, topics: Collection[str], by: str, *, dry_run: bool = False
) -> tuple[AssignedPartition, ...]:
    """Decide that copies begin after the records of others that their remote topics hold now.

    Returns the partitions decided on: without a reported position, but with present or former
    records on the target.
    """
    config, target = context.config, context.target
    source_topics, target_topics = context.source.topics(), target.topics()
    if unknown := set(topics) - set(config.names.select(source_topics)):
        raise NotFoundError(f"the flow does not copy {', '.join(sorted(unknown))}")
    state = state_topic(context)
    reported = positions_by_copy(decode_state(state.read()).reports)
    unreported = {}
    for name in topics:
        there = target_topics.get(config.names.remote(name))
        if there is not None:
            for assigned in assignments(source_topics[name], there):
                if assigned.copy_id not in reported:
                    unreported[assigned] = TopicPartition(there.name, assigned.partition)
    ends = target.high_watermarks(list(unreported.values())) if unreported else {}
    decided = tuple(sorted(one for one, place in unreported.items() if ends.get(place)))
    notes = [PartitionNotes.after_others(one, by, context.now_ms()) for one in decided]
    if notes and not dry_run:
        topic = internal_topics.replication(config.flow.source)  # no replicator may have run yet
        ensure_compacted(target, topic, STATE_PARTITIONS, config.internal_replication_factor)
        state.write({note.key(): note.value() for note in notes})
    return decided
