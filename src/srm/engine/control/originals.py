"""Topics that producers of a move write on its target and that it has only as copies.

A move creates them before its clients go, as a topic sync creates a remote topic. Their settings
and ACLs are those of the topic on the source; if the source is lost, those of its copy.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import chain
from typing import Final

from srm.config.model import FlowConfig
from srm.domain.names.flow_topics import RecordedCopies
from srm.domain.names.policy import IdentityReplicationPolicy, NameFilter, RestoringPolicy, literal
from srm.domain.names.record_headers import RecordSettings
from srm.domain.names.rights import writers_of
from srm.domain.text.amount import Finding, amount, problem, some, warning
from srm.engine.cluster_ports import Topics, TopicSpec
from srm.engine.control.topic_sync import TopicSyncPlan, plan_remote_topics, with_acls
from srm.engine.ports import FlowContext
from srm.errors import AuthorizationError, ConfigError, ConflictError

log = logging.getLogger(__name__)
LED: Final = ", where a move has led its producers"
"""Of the finding about a topic that was there at go."""


def plan_originals(context: FlowContext, like: Topics, *, is_away: bool) -> TopicSyncPlan:
    """Plan missing topics by those that they are ``like``, of the source or copies of a lost one.

    A copy does not show who may write to its original.
    """
    if not like:
        return TopicSyncPlan()
    cluster = context.target if is_away else context.source
    config = _returning(context.config, like, is_away=is_away)
    found = plan_remote_topics(like, {}, config, cluster.topic_settings(like))
    found = replace(found, findings=())
    if not config.sync_topic_acls_enabled:
        return found
    try:
        found = with_acls(found, cluster, context.target, like, config, written=not is_away)
    except AuthorizationError as error:
        return replace(found, notes=(f"its ACLs are not known: {error}",))
    except ConfigError:  # no authorizer
        return found
    notes = tuple(f"{one.text}: {one.action}" for one in found.findings)
    if is_away:
        rules = {*context.target.acls(), *found.acls}
        if closed := [one.name for one in found.create if not writers_of(one.name, rules)]:
            notes += (f"no ACL lets a producer write to {some(closed)}: add it there",)
    acls = tuple(acl for acl in found.acls if acl.resource == "topic")
    return replace(found, acls=acls, findings=(), notes=notes)


def _returning(config: FlowConfig, like: Topics, *, is_away: bool) -> FlowConfig:
    """Return settings of a flow that gives the topics their original names, and no headers."""
    return replace(
        config,
        policy=RestoringPolicy(config.policy) if is_away else IdentityReplicationPolicy(),
        topics=tuple(map(literal, like)),
        topics_exclude=(),
        topic_filter=NameFilter,
        records=RecordSettings(),
        back=None,
        both_enabled=False,
        recorded=RecordedCopies(),
        joined=frozenset(),
    )


def original_findings(
    context: FlowContext, planned: TopicSyncPlan, led: Collection[str] = ()
) -> Iterator[Finding]:
    """Yield what is created, one finding for topics alike, and what cannot be.

    ``led``: topics that a move has led to the target already, so that none creates them.
    """
    target, is_on = context.target, context.config.create_missing_topics
    alike = defaultdict[tuple[str, str], list[str]](list)
    wanted = [spec for spec in planned.create if spec.name not in led]
    refusals = target.creation_problems(wanted) if is_on and wanted else {}
    for spec in planned.create:
        missing = f"topic {spec.name} does not exist on {target.alias}"
        if spec.name in led:
            text = f"{missing}{LED}"
            yield problem("no-original", text, _command(context, spec))
        elif (refusal := refusals.get(spec.name)) is not None:
            text = f"{missing} and cannot be created: {refusal}"
            yield problem("no-original", text, refusal.action)
        elif is_on:
            alike[_shape(spec, planned), ""].append(spec.name)
        else:
            alike["", _command(context, spec)].append(spec.name)
    for (shape, command), names in alike.items():
        topics, it = f"topics {some(names)} do", "them"
        if len(names) == 1:
            topics, it = f"topic {names[0]} does", "it"
        what = f"{topics} not exist on {target.alias}"
        if is_on:
            text = f"{what}: a move creates {it} before clients go, with {shape}"
            yield warning("no-original", text)
        else:
            key = f"{context.config.flow}.create.missing.topics"
            text = f"{what}, where producers would write, and {key} is false"
            yield problem("no-original", text, command)
    for note in planned.notes:
        yield warning("no-original", note)


def _shape(spec: TopicSpec, planned: TopicSyncPlan) -> str:
    factor = spec.replication_factor
    replicas = "the brokers' replication factor" if factor < 0 else f"replication factor {factor}"
    settings = [f"{name}={value}" for name, value in sorted(spec.configs.items())]
    rules = sum(acl.name == spec.name for acl in planned.acls)
    own = [amount(rules, "ACL")] if rules else []
    shape = ", ".join([amount(spec.partitions, "partition"), replicas, *settings, *own])
    left = [f"{name}={value}" for name, value in planned.left.get(spec.name, {}).items()]
    return f"{shape}; without {', '.join(left)} (config.properties.exclude)" if left else shape


def on_target(context: FlowContext, what: str) -> str:
    """Return the command of Kafka that changes a topic on the target of a flow."""
    server = context.config.redirect.addresses.get(context.target.alias) or "HOST:PORT"
    return f"kafka-topics.sh --bootstrap-server {server} {what}"


def _command(context: FlowContext, spec: TopicSpec) -> str:
    factor = spec.replication_factor
    options = [] if factor < 0 else ["--replication-factor", str(factor)]
    settings = (("--config", f"{name}={value}") for name, value in sorted(spec.configs.items()))
    words = *options, *chain.from_iterable(settings)
    what = f"--create --topic {spec.name} --partitions {spec.partitions}"
    return " ".join((on_target(context, what), *words))


def create_originals(context: FlowContext, planned: TopicSyncPlan) -> bool:
    """Create what a plan lacks, and return whether it lacked any; safe to repeat at any point.

    ConflictError: that is switched off; else the error of a target that refuses it.
    """
    if not planned.create:
        return False
    if not context.config.create_missing_topics:
        raise ConflictError("; ".join(one.line for one in original_findings(context, planned)))
    target = context.target
    if planned.acls:  # first: a run that finds the topic looks no further
        target.create_acls(planned.acls)
    target.create_topics(planned.create)
    log.info("%s: created %s", target.alias, some([spec.name for spec in planned.create]))
    return True
