"""Allow and deny lists of srm-control, in a compacted topic on the flow's target.

The topic is ``__srm-control.<SOURCE>`` (:func:`srm.domain.names.internal_topics.control`),
one record per entry: key ``{"list": "topics", "kind": "allow", "pattern": "Payments"}``, value
``{"added_ms": 1700000000000}``; a removed entry is a tombstone. Entries are names or regular
expressions that match the whole name, and deny wins.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field, fields, replace
from typing import Literal, cast, get_args

from srm.config.model import FlowConfig
from srm.domain.names import internal_topics
from srm.domain.names.policy import compile_pattern, pattern_problems
from srm.domain.names.topics import Flow
from srm.domain.text.documents import decode
from srm.engine.cluster_ports import Cluster, tolerate
from srm.engine.control.control_topics import CONTROL_ID, ensure_compacted, until_not_fenced
from srm.errors import ConfigError, IntegrityError, UsageError

ListName = Literal["topics", "groups", "reverse-checkpointed-topics"]
EntryKind = Literal["allow", "deny"]

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ListPair:
    """One list: its allow and deny entries, each in alphabetical order."""

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ControlLists:
    """All lists of one flow; the reverse list names remote topics on the flow's source."""

    topics: ListPair = field(default_factory=ListPair)
    groups: ListPair = field(default_factory=ListPair)
    reverse_checkpointed_topics: ListPair = field(default_factory=ListPair)

    def pair(self, name: ListName) -> ListPair:
        return cast("ListPair", getattr(self, name.replace("-", "_")))


@dataclass(frozen=True, slots=True)
class ListChange:
    """Entries to add to and remove from one list, checked at construction."""

    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    add_deny: tuple[str, ...] = ()
    remove_deny: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if wrong := [*pattern_problems((*self.add, *self.add_deny))]:
            raise UsageError(f"{'; '.join(wrong)}; nothing was changed")
        both = {*self.add} & {*self.remove} | {*self.add_deny} & {*self.remove_deny}
        if both:
            raise UsageError(f"{min(both)!r} is both added and removed; nothing was changed")

    @property
    def is_empty(self) -> bool:
        return not any(getattr(self, each.name) for each in fields(self))


@dataclass(frozen=True, slots=True)
class ChangeSummary:
    """Result of a change; ``already`` and ``absent`` are entries that needed no change."""

    lists: ListPair
    added: tuple[str, ...]
    removed: tuple[str, ...]
    already: tuple[str, ...]
    absent: tuple[str, ...]


def load(target: Cluster, flow: Flow) -> ControlLists:
    """Read a flow's lists from its target, empty without the topic; bad entries are skipped."""
    topic = internal_topics.control(flow.source)
    found: dict[tuple[str, str], list[str]] = {}
    for key in target.compacted_topic(topic).read():
        entry = _decode(key, f"{topic} on {target.alias}")
        if entry is not None:
            found.setdefault((entry.list, entry.kind), []).append(entry.pattern)
    return ControlLists(
        **{
            name.replace("-", "_"): ListPair(
                **{kind: tuple(sorted(found.get((name, kind), ()))) for kind in get_args(EntryKind)}
            )
            for name in get_args(ListName)
        }
    )


def preview(target: Cluster, flow: Flow, name: ListName, changes: ListChange) -> ChangeSummary:
    """Return what a change would do, and the resulting list; nothing is written."""
    return _apply_changes(name, load(target, flow).pair(name), changes, 0)[1]


def change(
    target: Cluster,
    flow: Flow,
    name: ListName,
    changes: ListChange,
    now_ms: int,
    replicas: int | None = None,
) -> ChangeSummary:
    """Add and remove entries of one list; idempotent.

    ``replicas``: of the control topic, which is created if it is missing; None: it exists.
    """
    topic = internal_topics.control(flow.source)
    if replicas is not None:
        ensure_compacted(target, topic, replication_factor=replicas)

    def attempt() -> ChangeSummary:
        with closing(target.control_writer(CONTROL_ID)) as writer:
            records, summary = _apply_changes(name, load(target, flow).pair(name), changes, now_ms)
            writer.write({topic: records})
        return replace(summary, lists=load(target, flow).pair(name))

    return until_not_fenced(f"change of the list of {name} of {flow}", attempt)


def _apply_changes(
    name: ListName, current: ListPair, changes: ListChange, now_ms: int
) -> tuple[dict[bytes, bytes | None], ChangeSummary]:
    value = json.dumps({"added_ms": now_ms}).encode()
    records: dict[bytes, bytes | None] = {}
    kinds: tuple[tuple[EntryKind, tuple[str, ...], tuple[str, ...], tuple[str, ...]], ...] = (
        ("allow", current.allow, changes.add, changes.remove),
        ("deny", current.deny, changes.add_deny, changes.remove_deny),
    )
    for kind, present, add, remove in kinds:
        records |= {_key(name, kind, p): value for p in _missing(add, present)}
        records |= {_key(name, kind, p): None for p in remove if p in present}
    return records, ChangeSummary(
        lists=ListPair(**{kind: tuple(sorted({*p, *a} - {*r})) for kind, p, a, r in kinds}),
        added=tuple(p for _, present, add, _ in kinds for p in _missing(add, present)),
        removed=tuple(p for _, present, _, remove in kinds for p in remove if p in present),
        already=tuple(p for _, present, add, _ in kinds for p in add if p in present),
        absent=tuple(p for _, present, _, remove in kinds for p in _missing(remove, present)),
    )


def effective(flow_config: FlowConfig, lists: ControlLists) -> FlowConfig:
    listed = lists.reverse_checkpointed_topics
    reverse = _merge(flow_config.reverse_checkpointed_topics, listed.allow)
    return replace(
        flow_config,
        topics=_merge(flow_config.topics, lists.topics.allow),
        topics_exclude=_merge(flow_config.topics_exclude, lists.topics.deny),
        groups=_merge(flow_config.groups, lists.groups.allow),
        groups_exclude=_merge(flow_config.groups_exclude, lists.groups.deny),
        reverse_checkpointed_topics=tuple(_denying(one, listed.deny) for one in reverse),
    )


def merged_if_known(flow_config: FlowConfig, target: Cluster) -> FlowConfig:
    """Merge the lists into a flow's settings; the settings alone if the target does not answer.

    For moves: a hold can be released without it, and other steps detect its absence by themselves.
    """
    trouble = f"lists of {flow_config.flow} are not known"
    lists = tolerate(lambda: load(target, flow_config.flow), trouble)
    return flow_config if lists is None else effective(flow_config, lists)


def _merge(configured: tuple[str, ...], listed: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*configured, *listed)))


def _missing(wanted: Iterable[str], present: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(pattern for pattern in wanted if pattern not in present))


def _denying(pattern: str, deny: tuple[str, ...]) -> str:
    # FlowConfig has no exclude list of reverse checkpointed topics, like MM2.
    if not deny:
        return pattern
    denied = "|".join(f"(?:{each})" for each in deny)
    return rf"(?!(?:{denied})\z)(?:{pattern})"


def _key(name: ListName, kind: EntryKind, pattern: str) -> bytes:
    return json.dumps({"list": name, "kind": kind, "pattern": pattern}).encode()


@dataclass(frozen=True, slots=True)
class _Entry:
    """Key of the record of one entry."""

    list: str
    kind: str
    pattern: str


def _decode(key: bytes, where: str) -> _Entry | None:
    try:
        entry = decode(_Entry, "its key", key)
        compile_pattern(entry.pattern)
    except (IntegrityError, ConfigError) as error:
        _logger.warning("%s: entry %r is skipped: %s", where, key, error)
        return None
    return entry
