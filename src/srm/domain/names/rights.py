"""ACLs in the words of kafka-acls.sh, and the rights of each role, as in ``docs/security.md``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from srm.domain.names import internal_topics, java_pattern
from srm.domain.names.policy import PLAIN_NAME, ReplicationPolicy, literal
from srm.domain.names.topics import Flow

ResourceKind = Literal["topic", "group", "transactional-id"]

ANY_NAME: Final = "*"
"""A literal resource name that matches all names, and a host that matches all hosts."""
ALL_USERS: Final = "User:*"


@dataclass(frozen=True, slots=True, order=True)
class Acl:
    """One rule: a principal from a host may, or may not, do an operation on a resource."""

    resource: ResourceKind
    name: str
    principal: str
    operation: str
    permission: Literal["Allow", "Deny"] = "Allow"
    host: str = ANY_NAME
    pattern: Literal["literal", "prefixed"] = "literal"

    def __str__(self) -> str:
        return f"{self.subject}: {self.rule}"

    @property
    def subject(self) -> str:
        """The resource, such as ``topic payments``, with an asterisk after a prefix."""
        return f"{self.resource} {self.name}{'*' if self.pattern == 'prefixed' else ''}"

    @property
    def rule(self) -> str:
        """The rule without its resource, such as ``Allow Read for User:app``."""
        where = "" if self.host == ANY_NAME else f" from {self.host}"
        return f"{self.permission} {self.operation} for {self.principal}{where}"

    def covers(self, resource: ResourceKind, name: str) -> bool:
        if self.pattern == "prefixed":
            matches = name.startswith(self.name)
        else:
            matches = self.name in {name, ANY_NAME}
        return resource == self.resource and matches


def write_denial(topic: str) -> Acl:
    """Return the rule of a fence: no user may write to a topic."""
    return Acl("topic", topic, ALL_USERS, "Write", "Deny")


def writers_of(topic: str, acls: Iterable[Acl]) -> frozenset[str]:
    return frozenset(
        acl.principal
        for acl in acls
        if acl.permission == "Allow"
        and acl.operation in {"Write", "All"}
        and acl.covers("topic", topic)
    )


Role = Literal["replicator", "operator", "service", "client"]
ResourceOption = Literal["--topic", "--group", "--transactional-id", "--cluster"]

_TOPICS: Final = "__srm-"
"""Prefix of srm's topics."""
_WRITERS: Final = "srm-"
"""Prefix of srm's transactional ids."""


@dataclass(frozen=True, slots=True)
class NeededRight:
    """Operations on one resource of a cluster; the cluster itself has no name."""

    cluster: str
    operations: tuple[str, ...]
    option: ResourceOption
    name: str = ""
    prefixed: bool = False

    @property
    def arguments(self) -> tuple[str, ...]:
        words = [word for one in self.operations for word in ("--operation", one)]
        words += [self.option, *([self.name] if self.name else [])]
        return (*words, *(("--resource-pattern-type", "prefixed") if self.prefixed else ()))


@dataclass(frozen=True, slots=True)
class FlowNames:
    """Settings of a flow that its rights depend on; topics and groups are regular expressions."""

    flow: Flow
    policy: ReplicationPolicy
    topics: tuple[str, ...]
    groups: tuple[str, ...]
    offset_syncs_on: str

    @property
    def opposite(self) -> FlowNames:
        flow = self.flow.reverse
        location = flow.source if self.offset_syncs_on == self.flow.source else flow.target
        return FlowNames(flow, self.policy, self.topics, self.groups, location)


def replicator_rights(names: FlowNames, *, acls: bool = False) -> tuple[NeededRight, ...]:
    """Return what copying, checkpoints, group sync, topic sync and (``acls``) ACL sync need."""
    source, target, policy = names.flow.source, names.flow.target, names.policy
    other = target if names.offset_syncs_on == source else source
    syncs = internal_topics.offset_syncs(other, policy.separator)
    rights = [
        *_on_each(source, ("Read", "DescribeConfigs"), "--topic", names.topics),
        *_on_copies(source, ("Describe",), names, target),
        NeededRight(names.offset_syncs_on, ("Create", "Write"), "--topic", syncs),
        NeededRight(source, ("Read",), "--topic", _TOPICS, prefixed=True),
        NeededRight(source, ("Read",), "--topic", internal_topics.CONSUMER_OFFSETS),
        NeededRight(source, ("Describe",), "--group", ANY_NAME),
        *_on_copies(target, ("Create", "Write", "Read"), names, source),
        *_on_copies(target, ("Alter", "AlterConfigs"), names, source),
        *_on_each(target, ("Read",), "--topic", names.topics),
        NeededRight(target, ("Create", "Write"), "--topic", internal_topics.HEARTBEATS),
        NeededRight(target, ("Create", "Write", "Read"), "--topic", _TOPICS, prefixed=True),
        NeededRight(target, ("DescribeConfigs",), "--topic", _TOPICS, prefixed=True),
        NeededRight(target, ("Write",), "--transactional-id", _WRITERS, prefixed=True),
        NeededRight(target, ("Read",), "--topic", internal_topics.CONSUMER_OFFSETS),
        NeededRight(target, ("Read", "Delete"), "--group", ANY_NAME),
        NeededRight(target, ("DescribeConfigs",), "--cluster"),
    ]
    if acls:
        rights.append(NeededRight(source, ("Describe",), "--cluster"))
        rights.append(NeededRight(target, ("Describe", "Alter"), "--cluster"))
    return tuple(rights)


def operator_rights(names: FlowNames) -> tuple[NeededRight, ...]:
    """Return what moves need: the replicator's rights in both directions, and more."""
    rights = [*replicator_rights(names), *replicator_rights(names.opposite)]
    for cluster in names.flow.source, names.flow.target:
        rights += (
            *_on_each(cluster, ("Read",), "--topic", names.topics),
            *_on_each(cluster, ("Read", "DescribeConfigs"), "--group", names.groups),
            NeededRight(cluster, ("Describe",), "--transactional-id", ANY_NAME),
            NeededRight(cluster, ("Read",), "--topic", internal_topics.TRANSACTIONS),
            NeededRight(cluster, ("Describe",), "--cluster"),
        )
    return tuple(dict.fromkeys(rights))


def service_rights(names: FlowNames) -> tuple[NeededRight, ...]:
    source, target = names.flow.source, names.flow.target
    checkpoints = internal_topics.checkpoints(source, names.policy.separator)
    rights = [NeededRight(target, ("Read",), "--topic", checkpoints)]
    for cluster, other in ((source, target), (target, source)):
        rights += (
            *_on_each(cluster, ("Describe",), "--topic", names.topics),
            *_on_copies(cluster, ("Describe",), names, other),
            NeededRight(cluster, ("Read",), "--topic", _TOPICS, prefixed=True),
            NeededRight(cluster, ("Describe",), "--group", ANY_NAME),
        )
    return tuple(rights)


def client_rights(names: FlowNames, groups: Collection[str]) -> tuple[NeededRight, ...]:
    """Return what an application on ``srm.client`` needs; its transactional id is its group."""
    rights, ids = list[NeededRight](), [literal(group) for group in groups]
    source, target = names.flow.source, names.flow.target
    for cluster, other in ((source, target), (target, source)):
        rights += _on_each(cluster, ("Read", "Write"), "--topic", names.topics)
        for pattern in names.topics:
            copies = _copies(names, other, pattern)
            rights.append(NeededRight(cluster, ("Read",), "--topic", *copies))
        rights += _on_each(cluster, ("Read",), "--group", ids)
        rights.append(NeededRight(cluster, ("Read",), "--topic", internal_topics.ROUTING))
        rights.append(NeededRight(cluster, ("Write",), "--topic", internal_topics.CLIENTS))
        rights += _on_each(cluster, ("Write",), "--transactional-id", ids)
    return tuple(rights)


def _on_each(
    cluster: str, operations: tuple[str, ...], option: ResourceOption, patterns: Collection[str]
) -> Iterator[NeededRight]:
    for name, prefixed in dict.fromkeys(map(_resource, patterns)):
        yield NeededRight(cluster, operations, option, name, prefixed)


def _on_copies(
    cluster: str, operations: tuple[str, ...], names: FlowNames, alias: str
) -> Iterator[NeededRight]:
    """Yield rights on the copies of a cluster's topics; a policy may give them no prefix."""
    prefix, has_prefix = _copies(names, alias, ".*")
    if has_prefix:
        yield NeededRight(cluster, operations, "--topic", prefix, prefixed=True)
        return
    for name, prefixed in dict.fromkeys(_copies(names, alias, one) for one in names.topics):
        yield NeededRight(cluster, operations, "--topic", name, prefixed)
    heartbeats = names.policy.format_remote_topic(alias, internal_topics.HEARTBEATS)
    for name in heartbeats, internal_topics.checkpoints(alias, names.policy.separator):
        yield NeededRight(cluster, operations, "--topic", name)


def _copies(names: FlowNames, alias: str, pattern: str) -> tuple[str, bool]:
    """Return the name that covers the copies of topics, and whether it is a prefix."""
    name, prefixed = _resource(pattern)
    begin = "" if name == ANY_NAME else name
    copy = names.policy.format_remote_topic(alias, begin)
    if begin and not prefixed:
        return copy, False
    longer = names.policy.format_remote_topic(alias, f"{begin}x")
    covering = (one for one in (copy, begin) if one and longer.startswith(one))
    return next(((one, True) for one in covering), (ANY_NAME, False))


def _resource(pattern: str) -> tuple[str, bool]:
    """Return the name that covers a pattern, and whether it is a prefix; else all names."""
    if PLAIN_NAME.fullmatch(pattern):
        return pattern, False
    found = java_pattern.parse(pattern)
    return (found.prefix, not found.is_literal) if found.prefix else (ANY_NAME, False)
