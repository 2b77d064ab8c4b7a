"""ACLs that a flow carries to its target: MirrorMaker 2's rules, and more where they are wanted.

Rules on selected topics apply to their remote topics. ``Allow Write`` stays where it is, since only
the replicator writes to a copy, and ``Allow All`` becomes ``Allow Read``. A rule that could stop
the replicator, or that the opposite flow carries too, is a finding instead.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Final

from srm.config.model import FlowConfig
from srm.domain.names.rights import ANY_NAME, Acl, write_denial, writers_of
from srm.engine.control.topic_plan import SyncFinding

_OWN_NAMES: Final = ("srm-", "__srm-")
"""Prefixes of srm's transactional ids and topics."""
_CONSUMING: Final = frozenset({"Read", "Describe", "DescribeConfigs"})
"""Operations whose denial does not keep the replicator from writing."""


@dataclass(frozen=True, slots=True)
class AclPlan:
    """ACLs of a flow's target: to add, on remote topics without a reason, and what stays."""

    add: tuple[Acl, ...]
    surplus: tuple[Acl, ...]
    findings: tuple[SyncFinding, ...]


def plan_acls(
    here: Collection[Acl],
    there: Collection[Acl],
    source_topics: Collection[str],
    config: FlowConfig,
) -> AclPlan:
    """Compare the ACLs of the source (``here``) with those of the target (``there``); pure.

    ACLs of principals that write to a remote topic, as replicators do, are not surplus. A prefix
    counts if one of the ``source_topics`` has it and is selected.
    """
    names = config.names
    selected = names.select(source_topics)
    wanted: set[Acl] = set()
    add: set[Acl] = set()
    findings: dict[SyncFinding, None] = {}
    for acl in sorted(here):
        copies = frozenset(_copies(acl, selected, config))
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
        if acl.resource == "topic"
        and acl.pattern == "literal"
        and acl.name in remote
        and acl not in wanted
        and acl != write_denial(acl.name)
        and acl.principal not in writers_of(acl.name, there)
    )
    return AclPlan(tuple(sorted(add)), tuple(sorted(surplus)), tuple(findings))


def _copies(acl: Acl, selected: Collection[str], config: FlowConfig) -> Iterator[Acl]:
    """Yield what the target should have for an ACL of the source."""
    included = config.sync_acls_include
    named = acl.pattern == "literal" and acl.name != ANY_NAME
    if acl.resource == "topic":
        is_fence = named and acl == write_denial(acl.name)  # it would shut out the replicator
        if not (is_fence or (acl.permission == "Allow" and acl.operation == "Write")):
            yield from _on_remote_topics(acl, selected, config)
    elif acl.resource == "group":
        groups = config.group_names
        if "groups" in included and (groups.matches(acl.name) if named else bool(config.groups)):
            yield acl
    elif "transactional-ids" in included and not acl.name.startswith(_OWN_NAMES):
        yield acl


def _on_remote_topics(acl: Acl, selected: Collection[str], config: FlowConfig) -> Iterator[Acl]:
    names, everything = config.names, acl.name == ANY_NAME and acl.pattern == "literal"
    if acl.permission == "Allow" and acl.operation == "All":
        acl = replace(acl, operation="Read")
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
    """Return why a copy of an ACL is not added; None if it is."""
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
    return SyncFinding(acl.where, f"{acl.rule} is on {source} only, {why}", action)


def _covers_own_names(acl: Acl) -> bool:
    if acl.pattern == "literal":
        return acl.name == ANY_NAME
    return any(own.startswith(acl.name) or acl.name.startswith(own) for own in _OWN_NAMES)
