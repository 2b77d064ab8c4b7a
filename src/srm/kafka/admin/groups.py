"""Groups of all kinds of one cluster: states, offsets, members."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Generic, TypeVar

from confluent_kafka import KafkaError

from srm.domain.names.internal_topics import CONSUMER_OFFSETS
from srm.domain.names.topics import TopicPartition
from srm.engine.cluster_ports import ByGroup, GroupDescription, GroupKind, GroupState
from srm.errors import GroupActiveError, SrmError, UnavailableError, UsageError
from srm.kafka.admin.clients import Clients, answers_of, batches
from srm.kafka.admin.offsets import high_watermarks, log_ends
from srm.kafka.admin.topics import UNKNOWN_TOPIC_CODES
from srm.kafka.admin.topics import names as topics_of
from srm.kafka.wire import requests as api
from srm.kafka.wire.brokers import Brokers
from srm.kafka.wire.errors import check, of_code, on_cluster, on_group, on_topic, translate
from srm.kafka.wire.messages import Message, Request

_T = TypeVar("_T")
_Found = list[tuple[TopicPartition, api.Answer]]
"""The answers about a group, by partition; one of several requests may name a partition again."""

_BATCH: Final = 100
_NAMES: Final = 500
"""Groups in one request: each answer names all their partitions."""
_NO_GENERATION: Final = -1
_GROUP_RESOURCE: Final = 32
_RESET: Final = "share.auto.offset.reset"
_NO_EPOCH: Final = -1
_UNSTABLE_WAIT_S: Final = 2.0
_SILENT_S: Final = 2.0
"""Wait for a coordinator if a whole time limit has passed without an answer about its groups."""
_FEW: Final = 10_000
"""Answers of all groups for all partitions; for thousands of both, brokers take minutes."""
_REMOVED: Final = "removed by srm for a move"
_ENDED: Final = "its program has ended"
_UNSTABLE: Final = 88
_ABSENT: Final = frozenset({KafkaError.GROUP_ID_NOT_FOUND, KafkaError.UNSUPPORTED_VERSION})
"""The group is absent, or the broker has no groups of that kind, or share groups are off."""
_GONE: Final = _ABSENT | {KafkaError.UNKNOWN_MEMBER_ID}
_NO_GROUP: Final = frozenset({KafkaError.GROUP_ID_NOT_FOUND, KafkaError._UNKNOWN_GROUP})  # noqa: SLF001 - local code
_GROUP_KEYS: Final = 0
"""Key type of FindCoordinator for groups."""
_CONSUMERS: Final = frozenset({"", "consumer"})
_STATES: Final[Mapping[str, GroupState]] = {"Empty": "empty", "Dead": "dead"}
_DESCRIBE: Final[Mapping[GroupKind, Message]] = {
    "classic": api.DESCRIBE_CLASSIC,
    "consumer": api.DESCRIBE_CONSUMER,
    "streams": api.DESCRIBE_STREAMS,
    "share": api.DESCRIBE_SHARE,
}


def describe(clients: Clients, names: Collection[str] | None = None) -> dict[str, GroupDescription]:
    """Describe all groups, UnavailableError if some could not be, or the named ones, if not one."""
    wanted = None if names is None else frozenset(names)
    if wanted is not None and not wanted:
        return {}
    look = _Look(clients)
    try:
        return clients.request("describing groups", lambda brokers: look.at(brokers, wanted))
    except UnavailableError as error:
        if wanted is None or not look.found:  # a list without a broker's groups looks complete
            raise
        look.later = dict.fromkeys(wanted - look.found.keys(), error) | look.later
        clients.silent_groups.update(look.later)
        return look.all


def _await(clients: Clients, found: Collection[str], later: Mapping[str, SrmError]) -> None:
    """Raise why groups have to wait, but for those that were awaited in vain before."""
    silent = clients.silent_groups
    silent.difference_update(found)
    if left := {str(why) for name, why in later.items() if name not in silent or not found}:
        raise UnavailableError("; ".join(sorted(left)[:3]))


async def _at_coordinators(
    clients: Clients,
    brokers: Brokers,
    groups: Collection[str],
    read: Callable[[Brokers, int, list[str]], Any],
    fail: Callable[[str, SrmError], None],
    done: Mapping[str, object],
) -> None:
    """Read groups at their coordinators; one that hangs holds up its own alone, and once."""

    async def of_node(node: int, names: list[str]) -> None:
        limit_s = _SILENT_S if clients.silent_groups >= {*names} else None
        try:
            await asyncio.wait_for(read(brokers, node, names), limit_s)
        except (TimeoutError, SrmError) as error:
            late = UnavailableError(f"its coordinator, broker {node}, does not answer")
            failed.update(dict.fromkeys(names, error if isinstance(error, SrmError) else late))

    by_node, failed = await by_coordinator(clients, brokers, groups)
    await asyncio.gather(*[of_node(*each) for each in by_node.items()])
    for name in failed.keys() - done.keys():
        fail(name, failed[name])


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
    # Others drop what they could not use from the shared nodes while this one waits.
    known = {g: node for g in groups if (node := brokers.coordinators.get(g)) in brokers.nodes}
    unknown = sorted(set(groups) - known.keys())
    if unknown:
        await brokers.look()
    for some in batches(unknown, _NAMES):
        answer = await brokers.query_any(api.FIND_COORDINATORS(_GROUP_KEYS, some))
        for found in answer["coordinators"]:
            name = found["key"]
            if found["error_code"]:
                where = clients.label(f"finding the coordinator of group {name!r}")
                failed[name] = of_code(found["error_code"], where, on_group("Describe", name))
            else:
                brokers.coordinators[name] = known[name] = int(found["node"])
    by_node: dict[int, list[str]] = defaultdict(list)
    for name, node in sorted(known.items()):
        by_node[node].append(name)
    return by_node, failed


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
            for name in brokers.coordinators.keys() - self.all.keys():
                del brokers.coordinators[name]
        else:
            for name in wanted:
                brokers.coordinators.pop(name, None)
            ours = self._describe, self._fail, self.found
            await _at_coordinators(self._clients, brokers, wanted, *ours)
        _await(self._clients, self.found, self.later)
        return self.all

    @property
    def all(self) -> dict[str, GroupDescription]:
        return self.found | {name: _unreachable(name, why) for name, why in self.later.items()}

    async def _list(self, brokers: Brokers, node: int) -> None:
        by_type = await brokers.serves(node, api.LIST_GROUPS_BY_TYPE)
        request = api.LIST_GROUPS_BY_TYPE([], []) if by_type else api.LIST_GROUPS([])
        answer = await brokers.query(node, request)
        # A broker that does not answer hides the groups it coordinates.
        check([answer], self._clients.label("listing groups"), on_cluster("Describe"))
        by_kind: dict[GroupKind, list[str]] = defaultdict(list)
        for listed in answer["groups"]:
            # Brokers before Kafka 3.8 list classic groups only, without a type.
            name = listed.get("type", "").lower() or "classic"
            kind: GroupKind = next((kind for kind in _DESCRIBE if kind == name), "other")
            if kind == "other":
                reason = f"srm does not support groups of type {listed['type']!r}"
                self.found[listed["group"]] = GroupDescription(
                    listed["group"], "unknown", kind, reason=reason
                )
            else:
                by_kind[kind].append(listed["group"])
        for kind, names in by_kind.items():
            await self._describe(brokers, node, names, kind)

    async def _describe(
        self, brokers: Brokers, node: int, names: Sequence[str], listed_as: GroupKind = "classic"
    ) -> None:
        """Ask the coordinator of groups for them; again for those that only their offsets show.

        A group may be created between the two answers, as by srm's own writes of offsets.
        """
        for some in batches(names, _NAMES):
            left = await self._describe_once(brokers, node, some, listed_as)
            if left and (left := await self._absent(brokers, node, left)):
                await self._describe_once(brokers, node, left, listed_as)

    async def _describe_once(
        self, brokers: Brokers, node: int, left: list[str], listed_as: GroupKind
    ) -> list[str]:
        """Ask for groups as each kind until they are found; return those that are absent."""
        for kind in sorted(_DESCRIBE, key=lambda kind: kind != listed_as):
            describe = _DESCRIBE[kind]
            if left and await brokers.serves(node, describe):
                request = describe(left, False)  # noqa: FBT003 - a field of the message
                answer = await brokers.query(node, request)
                left = [name for group in answer["groups"] for name in self._take(group, kind)]
        return left

    def _take(self, group: api.Answer, kind: GroupKind) -> Iterator[str]:
        """Keep an answer; yield the group's name where it is none of this kind."""
        name, code = group["group"], group["error_code"]
        if code in _ABSENT or (not code and group["state"] == "Dead"):
            yield name
        elif code:
            self._refuse(name, code)
        else:
            self.found[name] = _description(group, kind)

    async def _absent(self, brokers: Brokers, node: int, names: list[str]) -> list[str]:
        """Separate groups that do not exist from those with visible offsets; return the latter."""
        request = api.FETCH_OFFSETS([(name, None) for name in names], False)  # noqa: FBT003 - as above
        answer, visible = await brokers.query(node, request), []
        for group in answer["groups"]:
            name, code = group["group"], group["error_code"]
            if code and code not in _ABSENT:
                self._refuse(name, code)
            elif any(p["offset"] >= 0 for topic in group["topics"] for p in topic["partitions"]):
                reason = "it has committed offsets, but its coordinator does not describe it"
                self.found[name] = GroupDescription(name, "unknown", reason=reason)
                visible.append(name)
            else:
                self.found[name] = GroupDescription(name, "dead")
        return visible

    def _refuse(self, name: str, code: int) -> None:
        where = self._clients.label(f"describing group {name!r}")
        self._fail(name, of_code(code, where, on_group("Describe", name)))

    def _fail(self, name: str, error: SrmError) -> None:
        if error.retriable:
            self.later[name] = error
        else:
            self.found[name] = _unreachable(name, error)


def _unreachable(name: str, error: SrmError) -> GroupDescription:
    return GroupDescription(name, "unknown", reason=str(error), action=error.action)


def _description(group: api.Answer, kind: GroupKind) -> GroupDescription:
    named = sorted(
        (f"{m['client_id']}@{m['host'].lstrip('/')}", m["member"]) for m in group["members"]
    )
    members, ids = tuple(name for name, _ in named), tuple(member for _, member in named)
    instances = tuple(sorted(filter(None, (m.get("instance_id") for m in group["members"]))))
    # While members come and go a group is in one of several states, and never to be written to.
    state = "active" if members else _STATES.get(group["state"], "active")
    protocol = group.get("protocol_type", "")
    reason = ""
    if protocol not in _CONSUMERS:
        kind, state = "other", "unknown"
        reason = f"it is not a consumer group: its protocol type is {protocol!r}"
    return GroupDescription(group["group"], state, kind, members, instances, reason, ids=ids)


def committed_offsets(
    clients: Clients, groups: Collection[str]
) -> ByGroup[dict[TopicPartition, int]]:
    """Return the committed offsets of groups, start offsets of share groups; absent ones have none.

    Offsets committed in a transaction become visible a moment after the transaction has ended:
    its markers are written asynchronously. So pending offsets are waited for, shortly. If they
    stay pending the transaction is still open, and the offsets before it are the committed ones.

    Not by librdkafka's admin client: some errors in the answer end the process (SIGSEGV in
    rd_kafka_cgrp_op, seen while a new cluster was creating its offsets topic).
    """
    deadline = time.monotonic() + _UNSTABLE_WAIT_S
    commits = _OfGroups(
        clients,
        lambda names: [api.FETCH_OFFSETS([(n, None) for n in names], time.monotonic() < deadline)],
        {0},
        lambda found: {place: p["offset"] for place, p in found if p["offset"] >= 0},
    )
    results, errors = commits.of(groups)
    # Only a group without commits can be a share group.
    starts, unread = _share_starts(clients).of([name for name in results if not results[name]])
    found = {name: {p: start for p, (start, _) in some.items()} for name, some in starts.items()}
    kept = {name: offsets for name, offsets in results.items() if name not in unread}
    return kept | found, errors | unread


def group_kinds(clients: Clients) -> frozenset[GroupKind]:
    """Return the group protocols that a cluster admits, by its settings, features and release.

    Share groups count if their start offsets can be set (Kafka 4.2).
    """
    probes: dict[GroupKind, tuple[Message, Request]] = {
        "consumer": (api.DESCRIBE_CONSUMER, api.DESCRIBE_CONSUMER(["srm"], False)),  # noqa: FBT003 - as above
        "streams": (api.DESCRIBE_STREAMS, api.DESCRIBE_STREAMS(["srm"], False)),  # noqa: FBT003 - as above
        "share": (api.FETCH_SHARE_STARTS, api.FETCH_SHARE_STARTS([("srm", None)])),
    }

    async def look(brokers: Brokers) -> frozenset[GroupKind]:
        await brokers.look()
        node, found = brokers.nodes[0], set[GroupKind]({"classic"})
        for kind, (served, request) in probes.items():
            if await brokers.serves(node, served):
                answer = await brokers.query(node, request)
                codes = [one["error_code"] for one in answer["groups"]]
                found |= set() if KafkaError.UNSUPPORTED_VERSION in codes else {kind}
        return frozenset(found)

    return clients.request("looking for group protocols", look)


def share_lags(clients: Clients, groups: Collection[str]) -> ByGroup[dict[TopicPartition, int]]:
    starts, errors = _share_starts(clients).of(groups)
    return {
        name: {p: lag for p, (_, lag) in some.items() if lag >= 0} for name, some in starts.items()
    }, errors


def share_groups(clients: Clients) -> frozenset[str]:
    """Return the names of the share groups of a cluster, none where brokers have no such groups."""
    doing = "listing share groups"

    async def of_node(brokers: Brokers, node: int) -> list[str]:
        if not await brokers.serves(node, api.FETCH_SHARE_STARTS):
            return []
        answer = await brokers.query(node, api.LIST_GROUPS_BY_TYPE([], ["share"]))
        check([answer], clients.label(doing), on_cluster("Describe"), _GONE)
        return [listed["group"] for listed in answer["groups"]]

    async def look(brokers: Brokers) -> frozenset[str]:
        await brokers.look()
        found = await asyncio.gather(*[of_node(brokers, node) for node in brokers.nodes])
        return frozenset(name for names in found for name in names)

    return clients.request(doing, look)


def share_resets(clients: Clients, groups: Collection[str]) -> dict[str, str]:
    doing = "describing settings of groups"

    async def look(brokers: Brokers) -> dict[str, str]:
        await brokers.look()
        wanted = [(_GROUP_RESOURCE, name, [_RESET]) for name in sorted(groups)]
        question = api.DESCRIBE_SETTINGS(wanted, False, False)  # noqa: FBT003 - fields of the message
        found = (await brokers.query_any(question))["resources"]
        for each in found:
            needs = on_group("DescribeConfigs", each["name"])
            check([each], clients.label(doing), needs, _GONE)
        return {each["name"]: s["value"] for each in found for s in each["settings"]}

    return clients.request(doing, look)


def pending(
    clients: Clients, groups: Collection[str], also: Collection[TopicPartition] = ()
) -> ByGroup[frozenset[TopicPartition]]:
    few = len(groups) * len(also) <= _FEW
    also = also if few or _may_be_undecided(clients) else ()
    topics = [None, api.numbers_by_topic(also)] if also else [None]
    stable = True  # an undecided offset is an error of its partition
    return _OfGroups(
        clients,
        lambda names: [api.FETCH_OFFSETS([(n, some) for n in names], stable) for some in topics],
        {0, _UNSTABLE, *UNKNOWN_TOPIC_CODES},
        lambda found: frozenset(place for place, p in found if p["error_code"] == _UNSTABLE),
    ).of(groups)


def _may_be_undecided(clients: Clients) -> bool:
    """Return whether a commit of a transaction stays undecided, as far as their log shows."""
    count = topics_of(clients).get(CONSUMER_OFFSETS, 0)
    try:
        ends = high_watermarks(clients, [TopicPartition(CONSUMER_OFFSETS, n) for n in range(count)])

        def is_decided() -> bool:
            stable = log_ends(clients, ends)
            return all(stable.get(place, -1) >= end for place, end in ends.items())

        clients.wait_until("the end of transactions", is_decided, _UNSTABLE_WAIT_S)
    except SrmError:
        return True
    return not count or len(ends) < count


def _share_starts(clients: Clients) -> _OfGroups[dict[TopicPartition, tuple[int, int]]]:
    """Fetch start offset and lag of share groups by partition; nothing of other groups."""
    return _OfGroups(
        clients,
        lambda names: [api.FETCH_SHARE_STARTS([(name, None) for name in names])],
        {0, *UNKNOWN_TOPIC_CODES},
        lambda found: {place: (p["offset"], p["lag"]) for place, p in found if p["offset"] >= 0},
        optional=True,
    )


def _reading(groups: Collection[str]) -> str:
    [name] = groups if len(groups) == 1 else [""]
    return f"reading offsets of group {name!r}" if name else "reading offsets of groups"


@dataclass
class _OfGroups(Generic[_T]):
    """Facts about groups, fetched from their coordinators with a request for many of them.

    ``requests``: makes the requests about some groups.
    ``usual``: error codes of partitions that do not fail their group.
    ``take``: makes the result of a group.
    ``optional``: a broker that does not support the request has no such groups.
    """

    clients: Clients
    requests: Callable[[Sequence[str]], Sequence[Request]]
    usual: Collection[int]
    take: Callable[[_Found], _T]
    optional: bool = False
    _results: dict[str, _T] = field(default_factory=dict)
    _errors: dict[str, SrmError] = field(default_factory=dict)
    _later: dict[str, UnavailableError] = field(default_factory=dict)

    def of(self, groups: Collection[str]) -> ByGroup[_T]:
        """Return results of groups, and the errors of others; UnavailableError if all have one."""
        if groups:
            try:
                self.clients.request(_reading(groups), lambda brokers: self._look(brokers, groups))
            except UnavailableError as error:
                if not self._results and not self._errors:
                    raise
                left = set(groups) - self._results.keys() - self._errors.keys()
                self._later = dict.fromkeys(left, error) | self._later
                self.clients.silent_groups.update(self._later)
            self._errors |= self._later
        return self._results, self._errors

    async def _look(self, brokers: Brokers, groups: Collection[str]) -> None:
        """Ask for the groups that have no answer yet; UnavailableError while some have to wait."""
        self._later.clear()
        left = set(groups) - self._results.keys() - self._errors.keys()
        ours = self._read, partial(self._fail, brokers), self._results
        await _at_coordinators(self.clients, brokers, left, *ours)
        _await(self.clients, {**self._results, **self._errors}, self._later)

    async def _read(self, brokers: Brokers, node: int, names: list[str]) -> None:
        for some in batches(names, _BATCH):
            answers: dict[str, list[api.Answer]] = defaultdict(list)
            for request in self.requests(some):
                if not self.optional or await brokers.serves(node, request.message):
                    for group in (await brokers.query(node, request))["groups"]:
                        answers[group["group"]].append(group)
            for name in some:
                try:
                    self._results[name] = self._result(name, answers[name])
                except SrmError as error:
                    self._fail(brokers, name, error)

    def _result(self, name: str, answers: Sequence[api.Answer]) -> _T:
        doing, where = _reading([name]), self.clients.label
        check(answers, where(doing), on_group("Describe", name), _ABSENT)
        found = [each for answer in answers for each in api.by_partition(answer).items()]
        for place, partition in found:
            if (code := partition["error_code"]) not in self.usual:
                raise of_code(code, where(f"{doing}: {place}"), on_topic("Describe", place.topic))
        return self.take(found)

    def _fail(self, brokers: Brokers, name: str, error: SrmError) -> None:
        """Keep the error of a group; its coordinator is looked for again."""
        brokers.coordinators.pop(name, None)
        if isinstance(error, UnavailableError):
            self._later[name] = error
        else:
            self._errors[name] = error


def remove_static(clients: Clients, group: str, instance_ids: Collection[str]) -> None:
    doing = f"removing static members of group {group!r}"
    needs = on_group("Read", group)

    async def request(brokers: Brokers) -> None:
        members = [("", instance_id, _REMOVED) for instance_id in sorted(set(instance_ids))]
        async with coordinator(clients, brokers, group) as node:
            answer = await brokers.query(node, api.LEAVE_GROUP(group, members))
            check([answer, *answer["members"]], clients.label(doing), needs, _GONE)

    if instance_ids:
        clients.request(doing, request, needs)


def remove_members(clients: Clients, group: str, ids: Collection[str]) -> None:
    """Remove the members, meant to be dead, with these ids; a live one joins again."""
    doing = f"removing members of group {group!r}"
    needs = on_group("Read", group)

    async def request(brokers: Brokers) -> None:
        async with coordinator(clients, brokers, group) as node:
            members = []
            for describe in (api.DESCRIBE_CLASSIC, api.DESCRIBE_CONSUMER):
                if await brokers.serves(node, describe):
                    question = describe([group], False)  # noqa: FBT003 - a field of the message
                    [found] = (await brokers.query(node, question))["groups"]
                    check([found], clients.label(doing), on_group("Describe", group), _GONE)
                    members += [m for m in found["members"] if m["member"] in ids]
            leaving = [(m["member"], m["instance_id"], _ENDED) for m in members]
            if leaving:
                answer = await brokers.query(node, api.LEAVE_GROUP(group, leaving))
                check([answer, *answer["members"]], clients.label(doing), needs, _GONE)

    clients.request(doing, request, needs)


def commit_idle(clients: Clients, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    topics = api.by_topic((p, (offset, _NO_EPOCH, "")) for p, offset in sorted(offsets.items()))
    _write(clients, group, offsets, api.COMMIT_OFFSETS(group, _NO_GENERATION, "", None, topics))


def set_share_starts(clients: Clients, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Set start offsets of a share group (KIP-932), maybe a new one; GroupActiveError: members."""
    if "share" not in group_kinds(clients):
        where = clients.label(f"writing offsets of group {group!r}")
        raise SrmError(
            f"{where}: the cluster has no share groups",
            "use Kafka 4.2 or later there, with share.version = 1",
        )
    topics = api.by_topic((p, (offset,)) for p, offset in sorted(offsets.items()))
    _write(clients, group, offsets, api.SET_SHARE_STARTS(group, topics))


def _write(
    clients: Clients, group: str, offsets: Mapping[TopicPartition, int], question: Request
) -> None:
    if not offsets:
        return
    negative = [str(partition) for partition, offset in offsets.items() if offset < 0]
    if negative:
        raise UsageError(f"group {group!r}: negative offset for {', '.join(sorted(negative))}")
    doing = f"writing offsets of group {group!r}"
    where = clients.label(doing)

    async def request(brokers: Brokers) -> None:
        async with coordinator(clients, brokers, group) as node:
            answer = await brokers.query(node, question)
            if code := answer.get("error_code"):
                raise of_code(code, where, on_group("Read", group))
            refused = api.by_partition(answer).items()
            failed = {place: p["error_code"] for place, p in refused if p["error_code"]}
            if failed:
                raise _refusal_error(where, group, failed)

    clients.request(doing, request, on_group("Read", group))


def delete(clients: Clients, groups: Collection[str]) -> None:
    """Delete groups; GroupActiveError if one has members, the others are deleted."""
    names = sorted(set(groups))
    if not names:
        return

    def error_of(name: str, error: KafkaError) -> SrmError | None:
        if error.code() in _NO_GROUP:
            return None
        return translate(error, clients.label(f"deleting group {name!r}"), on_group("Delete", name))

    def request(timeout_s: float) -> None:
        futures = clients.admin().delete_consumer_groups(names, request_timeout=timeout_s)
        answers_of(futures, timeout_s, error_of)

    clients.call("deleting groups", request, on_group("Delete", *names))


def _refusal_error(where: str, group: str, failed: Mapping[TopicPartition, int]) -> SrmError:
    """Make one error of the partitions that were refused; members matter most."""
    needs = {**on_group("Read", group), **on_topic("Read", *{place.topic for place in failed})}
    first = min(
        (of_code(code, where, needs) for code in failed.values()),
        key=lambda error: (not isinstance(error, GroupActiveError), error.retriable),
    )
    return type(first)(f"{first}; partitions: {', '.join(map(str, failed))}")
