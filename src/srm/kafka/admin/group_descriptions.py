"""Descriptions of groups of all kinds, which librdkafka's admin client does not list (KIP-1071)."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final

from srm.engine.cluster_ports import GroupDescription, GroupKind, GroupState
from srm.errors import SrmError, UnavailableError
from srm.kafka.admin.clients import Clients
from srm.kafka.wire.brokers import Brokers
from srm.kafka.wire.errors import check, of_code, on_cluster, on_group
from srm.kafka.wire.messages import Message
from srm.kafka.wire.requests import (
    DESCRIBE_CLASSIC,
    DESCRIBE_CONSUMER,
    DESCRIBE_SHARE,
    DESCRIBE_STREAMS,
    FETCH_OFFSETS,
    FIND_COORDINATORS,
    LIST_GROUPS,
    LIST_GROUPS_BY_TYPE,
)

GROUP_KEYS: Final = 0
"""Key type of FindCoordinator for groups."""

_BATCH: Final = 500
_UNSUPPORTED_VERSION: Final = 35
_GROUP_ID_NOT_FOUND: Final = 69
_NOWHERE: Final = frozenset({_UNSUPPORTED_VERSION, _GROUP_ID_NOT_FOUND})
_CONSUMERS: Final = frozenset({"", "consumer"})
_STATES: Final[Mapping[str, GroupState]] = {"Empty": "empty", "Dead": "dead"}
_DESCRIBE: Final[Mapping[GroupKind, Message]] = {
    "classic": DESCRIBE_CLASSIC,
    "consumer": DESCRIBE_CONSUMER,
    "streams": DESCRIBE_STREAMS,
    "share": DESCRIBE_SHARE,
}


def describe(clients: Clients, names: Collection[str] | None = None) -> dict[str, GroupDescription]:
    """Describe all groups, or the named ones; UnavailableError if not one could be."""
    wanted = None if names is None else frozenset(names)
    if wanted is not None and not wanted:
        return {}
    look = _Look(clients)
    try:
        return clients.ask("describing groups", lambda brokers: look.at(brokers, wanted))
    except UnavailableError:
        if not look.found:
            raise
        return look.found | {name: _unreachable(name, why) for name, why in look.later.items()}


@asynccontextmanager
async def coordinator(clients: Clients, brokers: Brokers, group: str) -> AsyncIterator[int]:
    """Give the node that coordinates a group; after an error it is looked for again."""
    try:
        by_node, failed = await by_coordinator(clients, brokers, [group])
        for error in failed.values():
            raise error  # noqa: TRY301 -- whatever fails, the node is looked for again
        [node] = by_node
        yield node
    except BaseException:
        brokers.coordinators.pop(group, None)
        raise


async def by_coordinator(
    clients: Clients, brokers: Brokers, groups: Collection[str]
) -> tuple[dict[int, list[str]], dict[str, SrmError]]:
    """Sort groups by the node that coordinates them; return why others have none."""
    failed: dict[str, SrmError] = {}
    unknown = sorted(g for g in groups if brokers.coordinators.get(g) not in brokers.nodes)
    if unknown:
        await brokers.look()
    for some in batches(unknown):
        answer = await brokers.query(brokers.nodes[0], FIND_COORDINATORS(GROUP_KEYS, some))
        for found in answer["coordinators"]:
            name = found["key"]
            if found["error_code"]:
                where = clients.where(f"finding the coordinator of group {name!r}")
                failed[name] = of_code(found["error_code"], where, on_group("Describe", name))
            else:
                brokers.coordinators[name] = int(found["node"])
    by_node: dict[int, list[str]] = defaultdict(list)
    for name in sorted(set(groups) - failed.keys()):
        by_node[brokers.coordinators[name]].append(name)
    return by_node, failed


def batches(names: Sequence[str], size: int = _BATCH) -> Iterator[list[str]]:
    """Cut names into lists of a size that one request can hold."""
    return (list(names[at : at + size]) for at in range(0, len(names), size))


class _Look:
    """One look at groups; those of which another look may say more are in ``later``, with why."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self.found: dict[str, GroupDescription] = {}
        self.later: dict[str, SrmError] = {}

    async def at(
        self, brokers: Brokers, wanted: Collection[str] | None
    ) -> dict[str, GroupDescription]:
        """Describe groups; UnavailableError while some of them have to wait."""
        self.found, self.later = {}, {}
        await brokers.look()
        if wanted is None:
            await asyncio.gather(*[self._list(brokers, node) for node in brokers.nodes])
            # What was deleted after it had been listed.
            self.found = {n: group for n, group in self.found.items() if group.state != "dead"}
        else:
            for name in wanted:
                brokers.coordinators.pop(name, None)
            by_node, failed = await by_coordinator(self._clients, brokers, wanted)
            for name, error in failed.items():
                self._fail(name, error)
            await asyncio.gather(
                *[self._describe(brokers, node, names) for node, names in by_node.items()]
            )
        if self.later:
            raise UnavailableError("; ".join(sorted({str(why) for why in self.later.values()})[:3]))
        return self.found

    async def _list(self, brokers: Brokers, node: int) -> None:
        """Describe the groups that a broker coordinates."""
        by_type = await brokers.serves(node, LIST_GROUPS_BY_TYPE)
        request = LIST_GROUPS_BY_TYPE([], []) if by_type else LIST_GROUPS([])
        answer = await brokers.query(node, request)
        # A broker that does not answer hides the groups it coordinates.
        check([answer], self._clients.where("listing groups"), on_cluster("Describe"))
        by_kind: dict[GroupKind, list[str]] = defaultdict(list)
        for listed in answer["groups"]:
            kind = _kind(listed.get("type", ""))
            if kind == "other":
                reason = f"srm does not know groups of type {listed['type']!r}"
                self.found[listed["group"]] = _unknown(listed["group"], reason, kind)
            else:
                by_kind[kind].append(listed["group"])
        for kind, names in by_kind.items():
            await self._describe(brokers, node, names, kind)

    async def _describe(
        self,
        brokers: Brokers,
        node: int,
        names: Sequence[str],
        listed_as: GroupKind = "classic",
    ) -> None:
        """Ask the coordinator of groups for them, as each kind until they are found."""
        for some in batches(names):
            left = some
            for kind in sorted(_DESCRIBE, key=lambda kind: kind != listed_as):
                describe = _DESCRIBE[kind]
                if left and await brokers.serves(node, describe):
                    request = describe(left, False)  # noqa: FBT003 - a field of the message
                    answer = await brokers.query(node, request)
                    left = [name for group in answer["groups"] for name in self._take(group, kind)]
            if left:
                await self._absent(brokers, node, left)

    def _take(self, group: Mapping[str, Any], kind: GroupKind) -> Iterator[str]:
        """Keep an answer; yield the group's name where it is none of this kind."""
        name, code = group["group"], group["error_code"]
        if code in _NOWHERE or (not code and group["state"] == "Dead"):
            yield name
        elif code:
            self._refuse(name, code)
        else:
            self.found[name] = _description(group, kind)

    async def _absent(self, brokers: Brokers, node: int, names: list[str]) -> None:
        """Separate groups that do not exist from those of which only the offsets are visible."""
        request = FETCH_OFFSETS([(name, None) for name in names], False)  # noqa: FBT003 - as above
        answer = await brokers.query(node, request)
        for group in answer["groups"]:
            name, code = group["group"], group["error_code"]
            if code and code not in _NOWHERE:
                self._refuse(name, code)
            elif any(p["offset"] >= 0 for topic in group["topics"] for p in topic["partitions"]):
                reason = "it has committed offsets, but its coordinator does not describe it"
                self.found[name] = _unknown(name, reason)
            else:
                self.found[name] = GroupDescription(name, "dead")

    def _refuse(self, name: str, code: int) -> None:
        where = self._clients.where(f"describing group {name!r}")
        self._fail(name, of_code(code, where, on_group("Describe", name)))

    def _fail(self, name: str, error: SrmError) -> None:
        if error.retriable:
            self.later[name] = error
        else:
            self.found[name] = _unreachable(name, error)


def _kind(listed: str) -> GroupKind:
    """Kind by the type in a listing; brokers before Kafka 3.8 list classic groups only."""
    if not listed:
        return "classic"
    for kind in _DESCRIBE:
        if listed.lower() == kind:
            return kind
    return "other"


def _unknown(name: str, reason: str, kind: GroupKind = "classic") -> GroupDescription:
    return GroupDescription(name, "unknown", kind, reason=reason)


def _unreachable(name: str, error: SrmError) -> GroupDescription:
    return replace(_unknown(name, str(error)), action=error.action)


def _description(group: Mapping[str, Any], kind: GroupKind) -> GroupDescription:
    members = tuple(sorted(f"{m['client_id']}@{m['host'].lstrip('/')}" for m in group["members"]))
    instances = tuple(sorted(filter(None, (m.get("instance_id") for m in group["members"]))))
    # While members come and go a group is in one of several states, and never to be written to.
    state = "active" if members else _STATES.get(group["state"], "active")
    protocol = group.get("protocol_type", "")
    reason = ""
    if protocol not in _CONSUMERS:
        kind, state = "other", "unknown"
        reason = f"it is not a consumer group: its protocol type is {protocol!r}"
    return GroupDescription(group["group"], state, kind, members, instances, reason)
