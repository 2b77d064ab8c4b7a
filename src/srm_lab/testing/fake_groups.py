"""Groups and transactions of the fake cluster."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from srm.domain.names.topics import ActiveProducer, OpenTransaction, TopicPartition
from srm.engine.cluster_ports import ByGroup, GroupDescription, GroupKind, GroupState
from srm.errors import AuthorizationError, GroupActiveError, SrmError, UnavailableError
from srm.kafka.admin.transactions import largest

_T = TypeVar("_T")
WriteCommit = Callable[[str, bytes, bytes | None], None]
"""Gets the group, and key and value of a record of ``__consumer_offsets``."""
_NOT_MOVED: Final[Mapping[GroupKind, str]] = {"other": "it is not a consumer group"}


@dataclass
class FakeGroup:
    """One group; ``members`` are (client id, instance id or nothing, member id).

    ``lags`` are those of a share group.
    """

    kind: GroupKind = "classic"
    members: list[tuple[str, str, str]] = field(default_factory=list)
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    pending: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    hidden: bool = False
    lags: dict[TopicPartition, int] = field(default_factory=dict)


class FakeGroups:
    """All groups of one cluster.

    ``alias``: of the cluster, for messages. ``write`` gets each commit as a record, and each
    tombstone.
    """

    def __init__(self, alias: str, write: WriteCommit = lambda *_: None) -> None:
        self._alias = alias
        self._write = write
        self._groups: dict[str, FakeGroup] = {}
        self._joined = 0

    def names(self) -> list[str]:
        """Return the groups that a listing shows."""
        return [name for name, group in self._groups.items() if not group.hidden]

    def describe(self, name: str) -> GroupDescription:
        """Describe one group; an absent one is dead."""
        group = self._groups.get(name)
        if group is None:
            return GroupDescription(name, "dead")
        if group.hidden:
            action = f"grant Describe on group {name}"
            return GroupDescription(name, "unknown", reason=action, action=action)
        named = sorted((f"{client}@127.0.0.1", member) for client, _, member in group.members)
        members, ids = tuple(name for name, _ in named), tuple(member for _, member in named)
        instances = tuple(sorted(instance for _, instance, _ in group.members if instance))
        state: GroupState = "active" if members else "empty"
        reason = _NOT_MOVED.get(group.kind, "")
        return GroupDescription(
            name, "unknown" if reason else state, group.kind, members, instances, reason, ids=ids
        )

    def committed_offsets(self, name: str) -> dict[TopicPartition, int]:
        """Return the committed offsets of a group."""
        group = self._groups.get(name)
        if group is None:
            return {}
        self._require_shown(name, group)
        return dict(group.offsets)

    def pending(self, name: str, also: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        """Return the undecided partitions that have offsets or are in ``also``."""
        group = self._groups.get(name)
        if group is None:
            return frozenset()
        self._require_shown(name, group)
        undecided = {p for offsets in group.pending.values() for p in offsets}
        return frozenset(undecided & (group.offsets.keys() | set(also)))

    def share_groups(self) -> frozenset[str]:
        """Return the names of share groups."""
        return frozenset(n for n in self.names() if self._groups[n].kind == "share")

    def lags(self, name: str) -> dict[TopicPartition, int]:
        """Return the lags of a share group."""
        return dict(self._groups[name].lags)

    def share(self, name: str, lags: Mapping[TopicPartition, int]) -> None:
        """Make a group a share group with lags."""
        group = self._groups.setdefault(name, FakeGroup("share"))
        group.kind = "share"
        group.lags.update(lags)

    def require_idle(self, name: str) -> None:
        """Raise GroupActiveError where the group has members."""
        if name in self._groups and self._groups[name].members:
            raise GroupActiveError(f"group {name!r} on cluster {self._alias} has members")

    def delete(self, names: Collection[str]) -> None:
        """Delete groups; those with members stay, and are named."""
        active = [name for name in names if name in self._groups and self._groups[name].members]
        for name in names:
            if name not in active:
                gone = self._groups.pop(name, FakeGroup())
                self._log(name, dict.fromkeys(gone.offsets))
        for name in active:
            self.require_idle(name)

    def commit(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Write offsets of any writer."""
        self._groups.setdefault(name, FakeGroup()).offsets.update(offsets)
        self._log(name, offsets)

    def _log(self, name: str, offsets: Mapping[TopicPartition, int | None]) -> None:
        for place, offset in offsets.items():
            group, topic = name.encode(), place.topic.encode()
            form = f">hh{len(group)}sh{len(topic)}si"
            key = struct.pack(form, 1, len(group), group, len(topic), topic, place.partition)
            value = None if offset is None else struct.pack(">hqihq", 3, offset, -1, 0, 0)
            self._write(name, key, value)

    def commit_in(
        self, transactional_id: str, name: str, offsets: Mapping[TopicPartition, int]
    ) -> None:
        """Write offsets that count once the transaction is committed."""
        pending = self._groups.setdefault(name, FakeGroup()).pending
        pending.setdefault(transactional_id, {}).update(offsets)

    def decide(self, transactional_id: str, *, commit: bool) -> None:
        """Commit or drop what :meth:`commit_in` wrote."""
        for group in self._groups.values():
            offsets = group.pending.pop(transactional_id, {})
            if commit:
                group.offsets.update(offsets)

    def join(self, name: str, member: str, kind: GroupKind, instance_id: str = "") -> str:
        """Let a member join, and return its id; the group is of its kind from then on."""
        group = self._groups.setdefault(name, FakeGroup(kind))
        group.kind = kind
        self._joined += 1
        member_id = f"{member}-{self._joined}"
        group.members.append((member, instance_id, member_id))
        return member_id

    def leave(self, name: str, member: str) -> None:
        """Let a member leave; one that was removed has gone already."""
        group = self._groups[name]
        group.members = [found for found in group.members if found[0] != member]

    def remove(self, name: str, ids: Collection[str]) -> None:
        """Remove members by their ids."""
        group = self._groups.get(name, FakeGroup())
        group.members = [found for found in group.members if found[2] not in ids]

    def remove_static(self, name: str, instance_ids: Collection[str]) -> None:
        """Remove members by their instance ids."""
        group = self._groups.get(name, FakeGroup())
        group.members = [found for found in group.members if found[1] not in instance_ids]

    def hide(self, name: str) -> None:
        """Revoke the right to describe the group."""
        self._groups.setdefault(name, FakeGroup()).hidden = True

    def expire(self, name: str) -> None:
        """Forget a group."""
        self._log(name, dict.fromkeys(self._groups.pop(name).offsets))

    def forget_topic(self, topic: str) -> None:
        """Forget the offsets in a topic that was deleted."""
        for group in self._groups.values():
            group.offsets = {p: o for p, o in group.offsets.items() if p.topic != topic}

    def _require_shown(self, name: str, group: FakeGroup) -> None:
        if group.hidden:
            raise AuthorizationError(
                f"reading offsets of group {name!r} on cluster {self._alias}",
                f"grant Describe on group {name}",
            )


def by_group(groups: Collection[str], call: Callable[[str], _T]) -> ByGroup[_T]:
    """Call for each group; return results, and errors of others.

    UnavailableError: not one group was answered for.
    """
    results: dict[str, _T] = {}
    errors: dict[str, SrmError] = {}
    for group in groups:
        try:
            results[group] = call(group)
        except SrmError as error:
            errors[group] = error
    for failed in errors.values():
        if not results and isinstance(failed, UnavailableError):
            raise failed
    return results, errors


@dataclass
class FakeTransaction:
    """An open transaction: where it began in which partition."""

    transactional_id: str
    producer_id: int
    age_ms: int
    first_offsets: dict[TopicPartition, int] = field(default_factory=dict)


class FakeTransactions:
    """All transactions of one cluster, and the producers that its leaders remember.

    ``readable`` is the right to see transactional ids and the log of transactions.
    """

    def __init__(self) -> None:
        self.readable = True
        self._open: dict[str, FakeTransaction] = {}
        self._ids: dict[str, int] = {}
        self._seen: set[frozenset[str]] = set()
        self._producers: dict[tuple[TopicPartition, int], ActiveProducer] = {}

    def add(self, name: str, place: TopicPartition, offset: int, age_ms: int) -> None:
        """Let a transaction, that is opened where it is not, write into a partition."""
        producer_id = self._ids.setdefault(name, 1000 + len(self._ids))
        found = self._open.setdefault(name, FakeTransaction(name, producer_id, age_ms))
        found.first_offsets.setdefault(place, offset)
        self._seen.add(frozenset(p.topic for p in found.first_offsets))
        self.remember(place, producer_id, 0)

    def end(self, name: str) -> tuple[TopicPartition, ...]:
        """End a transaction; return the partitions that get a marker."""
        found = self._open.pop(name, None)
        return tuple(found.first_offsets) if found else ()

    def remember(self, place: TopicPartition, producer_id: int, timestamp_ms: int) -> None:
        """Let a producer have written; its sequence goes up."""
        known = self._producers.get((place, producer_id))
        sequence = 0 if known is None else known.last_sequence + 1
        self._producers[place, producer_id] = ActiveProducer(
            place, producer_id, 0, timestamp_ms, sequence
        )

    def stable_end(self, place: TopicPartition, end: int) -> int:
        """Return the last stable offset of a partition that ends at ``end``."""
        return min([t.first_offset for t in self.open([place]).get(place, ())], default=end)

    def open(
        self, places: Collection[TopicPartition]
    ) -> dict[TopicPartition, tuple[OpenTransaction, ...]]:
        """Return the open transactions of the partitions that have any."""
        found: dict[TopicPartition, list[OpenTransaction]] = {}
        for transaction in self._open.values():
            for place, offset in transaction.first_offsets.items():
                if place in places:
                    seen = OpenTransaction(
                        place,
                        offset,
                        transaction.producer_id,
                        0,
                        transaction.transactional_id if self.readable else None,
                        transaction.age_ms if self.readable else None,
                    )
                    found.setdefault(place, []).append(seen)
        return {
            place: tuple(sorted(seen, key=lambda t: t.first_offset))
            for place, seen in sorted(found.items())
        }

    def active(
        self, places: Collection[TopicPartition]
    ) -> dict[TopicPartition, tuple[ActiveProducer, ...]]:
        """Return the remembered producers of the partitions that have any."""
        found: dict[TopicPartition, list[ActiveProducer]] = {}
        for (place, _), producer in sorted(self._producers.items()):
            if place in places:
                found.setdefault(place, []).append(producer)
        return {place: tuple(seen) for place, seen in found.items()}

    def written_together(self) -> tuple[frozenset[str], ...] | None:
        """Return the largest sets of topics that were written together."""
        return largest(self._seen) if self.readable else None
