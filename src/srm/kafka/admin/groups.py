"""Offsets and members of the groups of one cluster."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Any, Final, Generic, TypeVar

from confluent_kafka import KafkaError

from srm.domain.names.topics import TopicPartition
from srm.engine.cluster_ports import ByGroup
from srm.errors import GroupActiveError, SrmError, UnavailableError, UsageError
from srm.kafka.admin.clients import Clients, answers_of
from srm.kafka.admin.group_descriptions import batches, by_coordinator, coordinator
from srm.kafka.admin.topics import UNKNOWN_TOPIC_CODES
from srm.kafka.wire.brokers import Brokers
from srm.kafka.wire.errors import check, of_code, on_cluster, on_group, on_topic, translate
from srm.kafka.wire.messages import Request
from srm.kafka.wire.requests import (
    COMMIT_OFFSETS,
    DESCRIBE_CLASSIC,
    DESCRIBE_CONSUMER,
    DESCRIBE_SETTINGS,
    FETCH_OFFSETS,
    FETCH_SHARE_STARTS,
    LEAVE_GROUP,
    LIST_GROUPS_BY_TYPE,
    SET_SHARE_STARTS,
    by_partition,
    by_topic,
)

_T = TypeVar("_T")
_Topics = list[tuple[str, list[int]]]
_Commit = tuple[TopicPartition, int, int]
"""A partition, the offset, and an error code."""

_BATCH: Final = 100
"""Groups in one request: each answer names all their partitions."""
_NO_GENERATION: Final = -1
_GROUP_RESOURCE: Final = 32
_RESET: Final = "share.auto.offset.reset"
_NO_EPOCH: Final = -1
_UNSTABLE_WAIT_S: Final = 2.0
_REMOVED: Final = "removed by srm for a move"
_ENDED: Final = "its program has ended"
_UNKNOWN_MEMBER: Final = 25
_UNSTABLE: Final = 88
_GONE: Final = frozenset(
    {_UNKNOWN_MEMBER, KafkaError.GROUP_ID_NOT_FOUND, KafkaError.UNSUPPORTED_VERSION}
)
"""The member or the group is absent, or the broker has no groups of that kind."""
_ABSENT: Final = frozenset({KafkaError.GROUP_ID_NOT_FOUND, KafkaError.UNSUPPORTED_VERSION})
"""The group is absent, or share groups are off, as in a cluster that came from an older Kafka."""
_NO_GROUP: Final = frozenset({KafkaError.GROUP_ID_NOT_FOUND, KafkaError._UNKNOWN_GROUP})  # noqa: SLF001 - local code


def committed_offsets(
    clients: Clients, groups: Collection[str]
) -> ByGroup[dict[TopicPartition, int]]:
    """Return the committed offsets of groups, start offsets of share groups; absent ones have none.

    Offsets committed in a transaction become visible a moment after the transaction has ended:
    its markers are written asynchronously. So pending offsets are waited for, shortly. If they
    stay pending the transaction is still open, and the offsets before it are the committed ones.

    Not by librdkafka's admin client: some errors in the answer end the process (SIGSEGV in
    rd_kafka_cgrp_op, called by rd_kafka_handle_OffsetFetch; seen while a new cluster was creating
    its offsets topic).
    """
    deadline = time.monotonic() + _UNSTABLE_WAIT_S

    def take(group: str, found: list[_Commit]) -> dict[TopicPartition, int]:
        _check_places(clients, group, found, {0})
        return {place: offset for place, offset, _ in found if offset >= 0}

    results, errors = _commits(clients, [None], lambda: time.monotonic() < deadline, take).of(
        groups
    )
    # Only a group without commits can be a share group.
    starts, unread = _share_starts(clients).of([name for name in results if not results[name]])
    found = {name: {p: start for p, (start, _) in some.items()} for name, some in starts.items()}
    kept = {name: offsets for name, offsets in results.items() if name not in unread}
    return kept | found, errors | unread


def has_share_groups(clients: Clients) -> bool:
    """Return whether a cluster can have share groups whose start offsets are set (Kafka 4.2)."""

    async def look(brokers: Brokers) -> bool:
        await brokers.look()
        node = brokers.nodes[0]
        if not await brokers.serves(node, FETCH_SHARE_STARTS):
            return False
        answer = await brokers.query(node, FETCH_SHARE_STARTS([("srm", None)]))
        return all(g["error_code"] != KafkaError.UNSUPPORTED_VERSION for g in answer["groups"])

    return clients.ask("looking for share groups", look)


def share_lags(clients: Clients, groups: Collection[str]) -> ByGroup[dict[TopicPartition, int]]:
    """Return the lags of share groups: offsets from the start on that are not acknowledged."""
    starts, errors = _share_starts(clients).of(groups)
    return {
        name: {p: lag for p, (_, lag) in some.items() if lag >= 0} for name, some in starts.items()
    }, errors


def share_groups(clients: Clients) -> frozenset[str]:
    """Return the names of the share groups of a cluster, none where brokers have no such groups."""
    doing = "listing share groups"

    async def of_node(brokers: Brokers, node: int) -> list[str]:
        if not await brokers.serves(node, FETCH_SHARE_STARTS):
            return []
        answer = await brokers.query(node, LIST_GROUPS_BY_TYPE([], ["share"]))
        check([answer], clients.where(doing), on_cluster("Describe"), _GONE)
        return [listed["group"] for listed in answer["groups"]]

    async def look(brokers: Brokers) -> frozenset[str]:
        await brokers.look()
        found = await asyncio.gather(*[of_node(brokers, node) for node in brokers.nodes])
        return frozenset(name for names in found for name in names)

    return clients.ask(doing, look)


def share_resets(clients: Clients, groups: Collection[str]) -> dict[str, str]:
    """Return ``share.auto.offset.reset`` of groups; see the engine's port."""
    doing = "describing settings of groups"

    async def look(brokers: Brokers) -> dict[str, str]:
        await brokers.look()
        wanted = [(_GROUP_RESOURCE, name, [_RESET]) for name in sorted(groups)]
        question = DESCRIBE_SETTINGS(wanted, False, False)  # noqa: FBT003 - fields of the message
        found = (await brokers.query(brokers.nodes[0], question))["resources"]
        for each in found:
            needs = on_group("DescribeConfigs", each["name"])
            check([each], clients.where(doing), needs, _GONE)
        return {each["name"]: s["value"] for each in found for s in each["settings"]}

    return clients.ask(doing, look)


def pending(
    clients: Clients, groups: Collection[str], also: Collection[TopicPartition] = ()
) -> ByGroup[frozenset[TopicPartition]]:
    """Return the partitions with an undecided transactional commit, by group, requested by name."""
    named: dict[str, list[int]] = defaultdict(list)
    for partition in sorted(set(also)):
        named[partition.topic].append(partition.partition)

    def take(group: str, found: list[_Commit]) -> frozenset[TopicPartition]:
        _check_places(clients, group, found, {0, _UNSTABLE, *UNKNOWN_TOPIC_CODES})
        return frozenset(place for place, _, code in found if code == _UNSTABLE)

    topics = [None, list(named.items())] if named else [None]
    return _commits(clients, topics, lambda: True, take).of(groups)


def _reading(groups: Collection[str]) -> str:
    [name] = groups if len(groups) == 1 else [""]
    return f"reading offsets of group {name!r}" if name else "reading offsets of groups"


def _check_places(
    clients: Clients, group: str, found: Collection[_Commit], usual: Collection[int]
) -> None:
    for place, _, code in found:
        if code not in usual:
            where = clients.where(f"{_reading([group])}: {place}")
            raise of_code(code, where, on_topic("Describe", place.topic))


class _OfGroups(Generic[_T]):
    """Facts about groups, fetched from their coordinators with a request for many of them.

    ``requests`` yields the requests about groups of a node; ``take`` makes the result of a group of
    the answers about it, or raises its error.
    """

    def __init__(
        self,
        clients: Clients,
        requests: Callable[[Brokers, int, Sequence[str]], AsyncIterator[Request]],
        take: Callable[[str, Collection[Mapping[str, Any]]], _T],
    ) -> None:
        self._clients = clients
        self._requests = requests
        self._take = take
        self._results: dict[str, _T] = {}
        self._errors: dict[str, SrmError] = {}
        self._later: dict[str, UnavailableError] = {}

    def of(self, groups: Collection[str]) -> ByGroup[_T]:
        """Return results of groups, and the errors of others; UnavailableError if all have one."""
        if groups:
            try:
                self._clients.ask(_reading(groups), lambda brokers: self._look(brokers, groups))
            except UnavailableError as error:
                if not self._results and not self._errors:
                    raise
                left = set(groups) - self._results.keys() - self._errors.keys()
                self._errors |= {name: self._later.get(name, error) for name in left}
        return self._results, self._errors

    async def _look(self, brokers: Brokers, groups: Collection[str]) -> None:
        """Ask for the groups that have no answer yet; UnavailableError while some have to wait."""
        self._later.clear()
        left = set(groups) - self._results.keys() - self._errors.keys()
        by_node, unknown = await by_coordinator(self._clients, brokers, left)
        for name, error in unknown.items():
            self._fail(brokers, name, error)
        await asyncio.gather(*[self._ask(brokers, node, names) for node, names in by_node.items()])
        for waiting in self._later.values():
            raise waiting

    async def _ask(self, brokers: Brokers, node: int, names: list[str]) -> None:
        for some in batches(names, _BATCH):
            answers: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
            try:
                async for request in self._requests(brokers, node, some):
                    for group in (await brokers.query(node, request))["groups"]:
                        answers[group["group"]].append(group)
            except SrmError as error:
                for name in some:
                    self._fail(brokers, name, error)
                continue
            for name in some:
                try:
                    where = self._clients.where(_reading([name]))
                    check(answers[name], where, on_group("Describe", name), _ABSENT)
                    self._results[name] = self._take(name, answers[name])
                except SrmError as error:
                    self._fail(brokers, name, error)

    def _fail(self, brokers: Brokers, name: str, error: SrmError) -> None:
        """Keep the error of a group; its coordinator is looked for again."""
        brokers.coordinators.pop(name, None)
        if isinstance(error, UnavailableError):
            self._later[name] = error
        else:
            self._errors[name] = error


def _commits(
    clients: Clients,
    topics: Sequence[_Topics | None],
    stable: Callable[[], bool],
    take: Callable[[str, list[_Commit]], _T],
) -> _OfGroups[_T]:
    """Fetch commits of groups.

    Args:
        topics: one request for each, of all partitions where it is None.
        stable: whether undecided offsets are errors.
        take: makes the result of a group, or raises its error.
    """

    async def requests(
        _brokers: Brokers, _node: int, groups: Sequence[str]
    ) -> AsyncIterator[Request]:
        for some in topics:
            yield FETCH_OFFSETS([(name, some) for name in groups], stable())

    def take_answers(name: str, answers: Collection[Mapping[str, Any]]) -> _T:
        found = [(place, p["offset"], p["error_code"]) for place, p in _partitions_of(answers)]
        return take(name, found)

    return _OfGroups(clients, requests, take_answers)


def _share_starts(clients: Clients) -> _OfGroups[dict[TopicPartition, tuple[int, int]]]:
    """Fetch start offset and lag of share groups by partition; nothing of other groups."""

    async def requests(
        brokers: Brokers, node: int, groups: Sequence[str]
    ) -> AsyncIterator[Request]:
        if await brokers.serves(node, FETCH_SHARE_STARTS):
            yield FETCH_SHARE_STARTS([(name, None) for name in groups])

    def take(
        name: str, answers: Collection[Mapping[str, Any]]
    ) -> dict[TopicPartition, tuple[int, int]]:
        found = list(_partitions_of(answers))
        codes = [(place, p["offset"], p["error_code"]) for place, p in found]
        _check_places(clients, name, codes, {0, *UNKNOWN_TOPIC_CODES})
        return {place: (p["offset"], p["lag"]) for place, p in found if p["offset"] >= 0}

    return _OfGroups(clients, requests, take)


def _partitions_of(
    answers: Iterable[Mapping[str, Any]],
) -> Iterator[tuple[TopicPartition, Mapping[str, Any]]]:
    for answer in answers:
        yield from by_partition(answer).items()


def remove_static(clients: Clients, group: str, instance_ids: Collection[str]) -> None:
    """Remove members by their instance ids; see the engine's port (KIP-345, KIP-800)."""
    doing = f"removing static members of group {group!r}"
    needs = on_group("Read", group)

    async def request(brokers: Brokers) -> None:
        members = [("", instance_id, _REMOVED) for instance_id in sorted(set(instance_ids))]
        async with coordinator(clients, brokers, group) as node:
            answer = await brokers.query(node, LEAVE_GROUP(group, members))
            check([answer, *answer["members"]], clients.where(doing), needs, _GONE)

    if instance_ids:
        clients.ask(doing, request, needs)


def remove_members(clients: Clients, group: str, goes: Callable[[str], bool]) -> None:
    """Remove the members, meant to be dead, with a chosen client id; a live one joins again."""
    doing = f"removing members of group {group!r}"
    needs = on_group("Read", group)

    async def request(brokers: Brokers) -> None:
        async with coordinator(clients, brokers, group) as node:
            members = []
            for describe in (DESCRIBE_CLASSIC, DESCRIBE_CONSUMER):
                if await brokers.serves(node, describe):
                    question = describe([group], False)  # noqa: FBT003 - a field of the message
                    [found] = (await brokers.query(node, question))["groups"]
                    check([found], clients.where(doing), on_group("Describe", group), _GONE)
                    members += [m for m in found["members"] if goes(m["client_id"])]
            leaving = [(m["member"], m["instance_id"], _ENDED) for m in members]
            if leaving:
                answer = await brokers.query(node, LEAVE_GROUP(group, leaving))
                check([answer, *answer["members"]], clients.where(doing), needs, _GONE)

    clients.ask(doing, request, needs)


def commit_idle(clients: Clients, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Write offsets of a group; GroupActiveError if it has members."""
    topics = by_topic((p, (offset, _NO_EPOCH, "")) for p, offset in sorted(offsets.items()))
    _write(clients, group, offsets, COMMIT_OFFSETS(group, _NO_GENERATION, "", None, topics))


def set_share_starts(clients: Clients, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Set start offsets of a share group (KIP-932), maybe a new one; GroupActiveError: members."""
    if not has_share_groups(clients):
        where = clients.where(f"writing offsets of group {group!r}")
        raise SrmError(
            f"{where}: the cluster has no share groups",
            "use Kafka 4.2 or later there, with share.version = 1",
        )
    topics = by_topic((p, (offset,)) for p, offset in sorted(offsets.items()))
    _write(clients, group, offsets, SET_SHARE_STARTS(group, topics))


def _write(
    clients: Clients, group: str, offsets: Mapping[TopicPartition, int], question: Request
) -> None:
    if not offsets:
        return
    negative = [str(partition) for partition, offset in offsets.items() if offset < 0]
    if negative:
        raise UsageError(f"group {group!r}: negative offset for {', '.join(sorted(negative))}")
    doing = f"writing offsets of group {group!r}"
    where = clients.where(doing)

    async def request(brokers: Brokers) -> None:
        async with coordinator(clients, brokers, group) as node:
            answer = await brokers.query(node, question)
            if code := answer.get("error_code"):
                raise of_code(code, where, on_group("Read", group))
            failed = {
                place: p["error_code"] for place, p in _partitions_of([answer]) if p["error_code"]
            }
            if failed:
                raise _refusal_error(where, group, failed)

    clients.ask(doing, request, on_group("Read", group))


def delete(clients: Clients, groups: Collection[str]) -> None:
    """Delete groups; GroupActiveError if one has members, the others are deleted."""
    names = sorted(set(groups))
    if not names:
        return

    def error_of(name: str, error: KafkaError) -> SrmError | None:
        if error.code() in _NO_GROUP:
            return None
        where = clients.where(f"deleting group {name!r}")
        return translate(error, where, on_group("Delete", name))

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
