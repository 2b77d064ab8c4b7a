"""Findings: conditions of a flow or a move in words, and those of a move's surroundings."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from srm.domain.moves.request import MoveRequest
from srm.domain.names.topics import Flow
from srm.domain.text.amount import Reason, some

FindingId = Literal[
    "absent-topic",
    "duty",
    "no-topic",
    "off",
    "paused",
    "proof",
    "replicator",
    "silent-slot",
    "source-away",
    "stopped",
    "unreadable",
]


@dataclass(frozen=True, slots=True)
class Finding:
    """A condition of a flow with its remedy; one that ``blocks`` prevents copying, others warn."""

    id: FindingId
    reason: Reason
    blocks: bool = True

    @property
    def text(self) -> str:
        return self.reason.text


Retention = tuple[int | None, int | None]
"""Milliseconds on source and target; None is unlimited."""
SKEW_MS = 2_000
"""Difference of clocks up to which it is ignored."""


@dataclass(frozen=True)
class Surroundings:
    """The surroundings of a move when it is planned.

    ``staying``: groups outside the move, with the topics of the move they have offsets on.
    ``skew_ms``: a cluster's clock minus that of a client's host, by cluster and host.
    ``plain_members`` by group, ``plain_writers`` (recent, by topic): clients that no hold reaches.
    ``shared_ids``: ids of such producers that the target also remembers, by partition.
    ``state``: changelogs of a Kafka Streams application, by group.
    ``absent``: topics of the move that the target has only as copies, with their partition counts.
    ``alone``: clusters with one replica of their transaction log, though more are possible.
    ``inflows``: flows that bring records of a third cluster to topics of the move on the source.
    """

    opposite_enabled: bool = True
    opposite_topics: frozenset[str] = frozenset()
    staying: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    retention_ms: Mapping[str, Retention] = field(default_factory=dict)
    skew_ms: Mapping[str, int] = field(default_factory=dict)
    plain_members: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    plain_writers: Mapping[str, int] = field(default_factory=dict)
    shared_ids: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    state: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    absent: Mapping[str, int] = field(default_factory=dict)
    alone: tuple[str, ...] = ()
    inflows: tuple[Flow, ...] = ()


def surrounding_warnings(
    request: MoveRequest, topics: Collection[str], around: Surroundings
) -> Iterator[str]:
    """Yield the warnings of a plan, in the order in which an operator would handle them."""
    yield from _way_back(request, topics, around)
    yield from _absent(request, around)
    yield from _clients(request, around)
    for flow in around.inflows:
        yield (
            f"{flow} copies records of another cluster into topics of the move on "
            f"{request.source}, which waits while they arrive: run srm replicator stop --flow "
            f"'{flow}' before it, or wait until no more arrive"
        )
    yield from _groups(request, around)
    yield from _retention(request, around)
    yield from _clocks(around)
    yield from _transaction_logs(around)


def _way_back(request: MoveRequest, topics: Collection[str], around: Surroundings) -> Iterator[str]:
    back = request.flow.reverse
    if not around.opposite_enabled:
        yield (
            f"flow {back} is off, so records written on {request.target} after the move are not "
            f"copied and a return is impossible: set {back}.enabled=true"
        )
        return
    missing = sorted(set(topics) - around.opposite_topics)
    if missing:
        yield (
            f"flow {back} does not copy {', '.join(missing)}, a return is impossible: srm-control "
            f"topics {back.options} --add {','.join(missing)}"
        )


def _absent(request: MoveRequest, around: Surroundings) -> Iterator[str]:
    for topic, count in sorted(around.absent.items()):
        yield (
            f"topic {topic} does not exist on {request.target}, producers sent there fail or write "
            f"to a topic with the brokers' defaults: create it first with kafka-topics.sh "
            f"--bootstrap-server HOST:PORT --create --topic {topic} --partitions {count}"
        )


def _clients(request: MoveRequest, around: Surroundings) -> Iterator[str]:
    for group, members in sorted(around.plain_members.items()):
        yield (
            f"group {group}: {', '.join(members)} does not follow routes, the hold cannot reach "
            f"it: stop it when the move says hold, start it on {request.target} after go; a new "
            f"address alone is not enough, until it rejoins it reads at {request.source}'s offsets"
        )
    for topic, count in sorted(around.plain_writers.items()):
        yield (
            f"topic {topic}: {count} of the producers that wrote to it recently follow no route: "
            f"stop them when the move says hold, start them on {request.target} after go; with a "
            f"new address alone a producer keeps its id, which {request.target} may have given to "
            f"another, so that its batches can be acknowledged and never written"
        )
    for partition, ids in sorted(around.shared_ids.items()):
        yield (
            f"{partition}: producer {'id' if len(ids) == 1 else 'ids'} "
            f"{some([str(number) for number in ids])} of {request.source} "
            f"{'is' if len(ids) == 1 else 'are'} used by another producer on {request.target}: "
            f"restart the producers of the partition, a new address alone is not enough"
        )
    for group, changelogs in sorted(around.state.items()):
        yield (
            f"group {group} is a Kafka Streams application with state ({some(changelogs)}), which "
            f"does not move: its stores are empty on {request.target}; delete its local state "
            f"directories before it starts there, they hold {request.source}'s offsets, and "
            f"rebuild the stores from their input"
        )


def _groups(request: MoveRequest, around: Surroundings) -> Iterator[str]:
    alike: dict[tuple[str, ...], list[str]] = {}
    for group, topics in sorted(around.staying.items()):
        alike.setdefault(topics, []).append(group)
    for topics, groups in sorted(alike.items()):
        one = len(groups) == 1
        yield (
            f"{'group' if one else f'{len(groups)} groups:'} {some(groups)} "
            f"{'reads' if one else 'read'} {', '.join(topics)} on {request.source} and "
            f"{'does' if one else 'do'} not move: {'it gets' if one else 'they get'} records "
            f"written after the move only through {request.target}'s replicas; name "
            f"{'it' if one else 'them'} with --group to move {'it' if one else 'them'}"
        )


def _retention(request: MoveRequest, around: Surroundings) -> Iterator[str]:
    for topic, (source, target) in sorted(around.retention_ms.items()):
        if target is not None and (source is None or target < source):
            kept = "without limit" if source is None else f"{source} ms"
            yield (
                f"{topic} keeps records {target} ms on {request.target} but {kept} on "
                f"{request.source}: a group with a large lag may miss some; raise retention.ms "
                f"there"
            )


def _clocks(around: Surroundings) -> Iterator[str]:
    for where, skew in sorted(around.skew_ms.items()):
        if abs(skew) > SKEW_MS:
            yield (
                f"the clock of cluster {where}, is {abs(skew) / 1000:.1f} s "
                f"{'ahead' if skew > 0 else 'behind'}: times in reports are the brokers'; "
                f"synchronise the clocks"
            )


def _transaction_logs(around: Surroundings) -> Iterator[str]:
    for alias in around.alone:
        yield (
            f"topic __transaction_state of cluster {alias} has one replica: a frozen broker can "
            f"publish the decision of a move after the clients' leases expired; raise it to 3 "
            f"replicas with kafka-reassign-partitions.sh"
        )
