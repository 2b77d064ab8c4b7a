"""ACLs that a flow carries to its target: MirrorMaker 2's rules, and more where they are wanted.

Rules on selected topics apply to their remote topics. ``Allow Write`` stays where it is, since only
the replicator writes to a copy, and ``Allow All`` becomes ``Allow Read``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import Final

from srm.config.model import FlowConfig
from srm.domain.names.acls import ANY_NAME, Acl, write_denial, writers_of

_OWN_IDS: Final = "srm-"
"""Prefix of srm's transactional ids."""


def acls_to_copy(
    acls: Iterable[Acl], source_topics: Collection[str], config: FlowConfig
) -> frozenset[Acl]:
    """Return what the target should have for the ACLs of the source; pure.

    Args:
        acls: the source's.
        source_topics: all topics there. A prefix counts if a selected topic has it.
        config: settings of the flow, ``sync.acls.include`` among them.
    """
    return frozenset(
        copy
        for acl in acls
        if not (acl.permission == "Allow" and acl.operation == "Write" and acl.resource == "topic")
        and acl != write_denial(acl.name)  # a fence, which would shut out the replicator
        for copy in _on_target(acl, source_topics, config)
    )


def surplus_acls(
    wanted: Collection[Acl], there: Collection[Acl], remote_topics: Collection[str]
) -> tuple[Acl, ...]:
    """Return ACLs on remote topics that the source does not account for; pure.

    Those of principals that write to the remote topic, as replicators do, do not count.
    """
    remote = frozenset(remote_topics)
    return tuple(
        sorted(
            acl
            for acl in there
            if acl.resource == "topic"
            and acl.pattern == "literal"
            and acl.name in remote
            and acl not in wanted
            and acl != write_denial(acl.name)
            and acl.principal not in writers_of(acl.name, there)
        )
    )


def _on_target(acl: Acl, source_topics: Collection[str], config: FlowConfig) -> Iterator[Acl]:
    included = config.sync_acls_include
    everything = acl.name == ANY_NAME and acl.pattern == "literal"
    if acl.resource == "topic":
        if acl.permission == "Allow" and acl.operation == "All":
            acl = replace(acl, operation="Read")
        if acl.pattern == "literal" and not everything:
            chosen = config.names.selects(acl.name)
        else:
            prefix = "" if everything else acl.name
            selected = config.names.select(source_topics)
            chosen = "prefixed" in included and any(name.startswith(prefix) for name in selected)
            acl = replace(acl, name=prefix, pattern="prefixed")
        if chosen:
            name = config.names.remote(acl.name)
            yield replace(acl, name=name) if name else replace(acl, name="*", pattern="literal")
    elif acl.resource == "group":
        named = acl.pattern == "literal" and not everything
        groups = config.group_names
        if "groups" in included and (groups.matches(acl.name) if named else bool(config.groups)):
            yield acl
    elif "transactional-ids" in included and not acl.name.startswith(_OWN_IDS):
        yield acl
