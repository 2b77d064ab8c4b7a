"""Plan of a move: where each group continues, computed once and shown before anything is done.

For the topic ``Payments`` and a move from the source P to the target B::

    on the source                 on the target
    Payments    --- forward --->  P.Payments    through the map of P->B
    B.Payments  --- reverse --->  Payments      through the map of B->P, read backwards

:mod:`srm.domain.groups.translation` translates a commit. If the source is unavailable, the group's
last known place replaces its commit. Its commits on the target count too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final, Literal, Self

from srm.domain.groups.translation import (
    UNFINISHED,
    UNKNOWN_LOG,
    Direction,
    LogRange,
    Losses,
    PartitionFacts,
    State,
    Translation,
    translate,
)
from srm.domain.moves.disaster import Forecast
from srm.domain.moves.request import MoveRequest
from srm.domain.moves.routing import (
    ROUTING_ALONE,
    FenceKind,
    RedirectKind,
    home_subject,
    subjects_of,
)
from srm.domain.names.topics import Flow, TopicPartition, abort_command
from srm.domain.text.amount import Finding, amount, problem
from srm.domain.text.documents import Document, decode
from srm.errors import message

PositionState = State | Literal["conflict", "own-commit"]
"""States of a translation, and two for a consumer's own, later commit on the target.

A ``conflict`` needs a decision. An ``own-commit`` is kept, because the source is lost.
"""

_NOTHING = LogRange(0, 0, 0)

ACCEPTED_RPO: Final = "accepted_rpo"
"""Number of an approval: records that it accepts to lose at most."""


@dataclass(frozen=True, slots=True)
class LastPlace:
    """Last known place, next-to-read; ``by_srm``: written by a move or sync, unconfirmed since."""

    offset: int
    upstream_offset: int | None
    by_srm: bool = False
    time_ms: int = 0
    is_share: bool = False


@dataclass(frozen=True)
class GroupPosition:
    """Facts about one group in one partition, on both clusters.

    ``target_is_ours``: srm wrote the offset committed on the target (ledger), not a consumer.
    ``read_there``: how far it had come on the target before syncs carried it on, None if unknown.
    ``overwrite``: the group's place on the source replaces its own, later commit on the target.
    ``was_there``: srm carried it over from the target, where it has read up to its commit.
    ``last``: replaces ``committed`` if the source is lost (its log is :data:`.UNKNOWN_LOG`).
    ``unacknowledged``: offsets from the start offset of a share group on that it has not
    acknowledged; those that it has are delivered again. None if not known.
    """

    facts: PartitionFacts
    committed: int | None
    target_committed: int | None
    target_is_ours: bool
    accept_open_transactions: bool = False
    overwrite: bool = False
    last: LastPlace | None = None
    unacknowledged: int | None = None
    was_there: bool = False
    read_there: int | None = None

    @property
    def is_away(self) -> bool:
        return self.facts.upstream_log is UNKNOWN_LOG


@dataclass(frozen=True, slots=True)
class GroupPlace:
    """Place of one group in one partition on the source; its plan and its report hold it."""

    topic: str
    partition: int
    target_topic: str
    direction: Direction
    state: PositionState
    committed: int | None
    lag: int

    @property
    def target(self) -> TopicPartition:
        return TopicPartition(self.target_topic, self.partition)


@dataclass(frozen=True, slots=True)
class PartitionMove(GroupPlace):
    """Plan for one group in one partition; counts are records, offsets are next-to-read.

    ``resume``: offset to write on the target, None if nothing is to be written.
    ``remaining``: source offsets to copy before ``resume`` is known.
    ``passed_kept``: part of ``skipped``: offsets kept on the target at its return, passed there.
    """

    resume: int | None = None
    target_committed: int | None = None
    remaining: int = 0
    re_read: int = 0
    skipped: int = 0
    uncopied: int = 0
    reason: str = ""
    passed_kept: int = 0

    @property
    def is_applied(self) -> bool:
        return self.resume is None or self.resume == self.target_committed

    @property
    def not_there(self) -> int:
        """Number of skipped records that the target does not hold."""
        return self.skipped - self.passed_kept

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def left_to_reset(self) -> bool:
        """Return whether the clients' auto.offset.reset decides on records, in reverse always."""
        records = self.lag > 0 or self.direction == "reverse"
        return self._has_no_commit and records and self.target_committed is None

    @property
    def left_to_commit(self) -> bool:
        """Return whether a commit among the records of several clusters passes unread ones."""
        is_shared = self.target_topic == self.topic and self.target_committed is not None
        return self._has_no_commit and self.lag > 0 and is_shared

    @property
    def _has_no_commit(self) -> bool:
        return self.state == "no-commit" and self.committed is None


def partition_move(group: GroupPosition) -> PartitionMove:
    """Decide where the group continues. Without the source ``lag`` counts what the target holds."""
    facts, log = group.facts, group.facts.upstream_log or _NOTHING
    found = _after_loss(group) if group.is_away else translate(facts, group.committed)
    if found.state in {"no-map", "no-target"} and log.end <= log.start:
        found = Translation("no-commit")  # there is nothing to read on either side
    committed = group.last.upstream_offset if group.last else group.committed
    row = PartitionMove(
        topic=facts.upstream.topic,
        partition=facts.upstream.partition,
        target_topic=facts.downstream.topic,
        direction=facts.direction,
        state=found.state,
        committed=committed,
        lag=_to_read_there(facts, found.offset)
        if group.is_away
        else facts.records_upstream(max(committed or 0, log.start), log.end),
        target_committed=group.target_committed,
        remaining=found.remaining,
        reason=found.reason,
        resume=found.offset if found.state == "translated" else None,
    )
    if found.state in UNFINISHED and group.accept_open_transactions:
        row = _without_waiting(row, group, found, log)
    elif (found.state, facts.direction) == ("no-target", "reverse") and not group.is_away:
        # The original was created again with fewer partitions: there is no place to continue at.
        unread = max(0, log.end - max(committed or 0, log.start))
        row = replace(row, state="no-commit", lag=unread, skipped=unread)
    if row.resume is None:
        return row
    passed_kept = 0 if group.is_away else _passed_kept(group, row.resume)
    row = replace(
        row,
        skipped=found.total_skipped + passed_kept,
        uncopied=found.uncopied,
        passed_kept=passed_kept,
        re_read=row.re_read + found.re_read + _count_acknowledged(group, log),
    )
    return _beside_theirs(row, group)


def _count_acknowledged(group: GroupPosition, log: LogRange) -> int:
    """Count the offsets after the start offset of a share group that it has acknowledged."""
    if group.unacknowledged is None or group.committed is None:
        return 0
    return max(0, log.end - max(group.committed, log.start) - group.unacknowledged)


def _after_loss(group: GroupPosition) -> Translation:
    """Return where the group continues without its source: last place, own commit or log end."""
    facts, last, theirs = group.facts, group.last, group.target_committed
    log = facts.downstream_log
    if log is None:
        reason = f"{facts.downstream} does not exist on {facts.target}"
        return Translation("no-commit") if last is None else Translation("no-target", reason=reason)
    if last is None and theirs is not None:
        last = LastPlace(theirs, None)
    if last is None:
        is_empty = log is not UNKNOWN_LOG and log.start >= log.end
        return Translation("translated", log.end) if is_empty else Translation("no-commit")
    resume = min(max(last.offset, log.start), log.end)
    reason = ""
    if log is UNKNOWN_LOG:
        reason = f"{facts.downstream} has no leader now, so its log is not known"
    elif last.offset < log.start:
        reason = f"the log of {facts.downstream} begins at {log.start}: earlier records are deleted"
    elif last.offset > log.end:
        reason = f"the log of {facts.downstream} was truncated to {log.end}"
    reached, dropped, refused = last.upstream_offset, max(0, resume - last.offset), 0
    if reached is not None and facts.direction == "forward":
        refused = facts.losses.count_at_most(facts.offset_map, reached)
    return Translation(
        "translated", resume, reached, dropped=dropped, refused=refused, reason=reason
    )


def _to_read_there(facts: PartitionFacts, offset: int | None) -> int:
    """Count what the target holds from an offset on, by default from the start of the log.

    Of a copy these are records where the map is loaded, and never the markers at its end.
    """
    log, known = facts.downstream_log, facts.offset_map
    if log is None or log is UNKNOWN_LOG:
        return 0
    start, end = log.start if offset is None else offset, known.last_target_end
    if facts.direction == "reverse" or facts.back or known.first is None or end is None:
        return log.end - start
    first, reached = known.first[1], max(end, known.known_target_end or 0)
    copied = facts.records_downstream(max(start, first), min(end, log.end))
    return max(0, first - start) + copied + max(0, log.end - max(start, reached))


def _passed_kept(group: GroupPosition, resume: int) -> int:
    """Count the kept offsets on the target between the group's commit there and ``resume``."""
    facts = group.facts.back or group.facts
    been = group.target_committed if group.read_there is None else group.read_there
    log = facts.downstream_log
    if facts.direction == "forward" or log is None:
        return 0
    kept = Losses(facts.losses.kept)
    return kept.count_at_most(facts.offset_map, max(log.start, been or 0), resume)


def _without_waiting(
    row: PartitionMove, group: GroupPosition, found: Translation, log: LogRange
) -> PartitionMove:
    """Continue at the end of the copy if only an open transaction holds back the rest."""
    if found.offset is None or found.reached is None or found.reached < log.stable_end:
        return row
    again = group.facts.records_upstream(found.reached, found.reached + found.remaining)
    return replace(row, state="translated", resume=found.offset, remaining=0, re_read=again)


def _beside_theirs(row: PartitionMove, group: GroupPosition) -> PartitionMove:
    """Compare the place with the group's own commit on the target, but for markers between them.

    A commit that the log does not reach counts as one at its end, or start: retention came first.
    """
    theirs, resume, log = group.target_committed, row.resume, group.facts.downstream_log
    if theirs is None or resume is None:
        return row
    if log is not None and log is not UNKNOWN_LOG:
        theirs = min(max(theirs, log.start), log.end)
    again = group.facts.records_downstream(resume, theirs) if theirs > resume else 0
    if theirs > resume and not again:
        row = replace(row, resume=theirs)  # the same place, whether srm or a consumer committed it
    elif not group.target_is_ours:
        row = _beside_consumers(row, group, theirs, again)
    return row


def _beside_consumers(
    row: PartitionMove, group: GroupPosition, theirs: int, again: int
) -> PartitionMove:
    """Compare the place with a commit of a consumer on the target, ``again`` records further."""
    dropped = theirs - (group.target_committed or 0)  # or, below 0, past the end of the log
    if not dropped and not group.is_away and group.facts.never_copied:
        return replace(row, state="no-commit", resume=None)  # the consumer's commit counts
    # After a loss a commit of the group is newer than srm's own write, or the only one.
    is_newer = again > 0 or group.last is None or group.last.by_srm
    if group.is_away and is_newer and not group.overwrite:
        lag = max(0, _to_read_there(group.facts, theirs))
        row = replace(row, state="own-commit", resume=theirs, lag=lag, reason="")
        return replace(row, skipped=max(0, dropped))
    one_map = replace(group.facts, back=None)
    at = translate(one_map, group.committed).offset if again and group.was_there else None
    if at is not None and not one_map.records_downstream(at, theirs):
        return replace(row, resume=theirs, re_read=one_map.records_downstream(theirs, at))
    if not again:
        return row
    copied = group.facts.offset_map.known_source_end or theirs
    if (log := group.facts.downstream_log) and theirs > (first := log.stable_end):
        end = abort_command(row.target, first)
        row = replace(row, reason=f"in a transaction open from {first} on: wait, or end it: {end}")
    elif row.direction == "reverse" and theirs > copied:
        row = replace(row, reason=f"the copy has come to {copied} only: does its replicator run?")
    return replace(row, state="conflict", re_read=again)


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """Plan for one group; ``members``: those active on the source at planning."""

    group: str
    members: tuple[str, ...]
    positions: tuple[PartitionMove, ...]

    @property
    def lag(self) -> int:
        return sum(position.lag for position in self.positions)

    @property
    def re_read(self) -> int:
        return sum(position.re_read for position in self.positions)

    @property
    def total_skipped(self) -> int:
        return sum(position.skipped for position in self.positions)


@dataclass(frozen=True, slots=True)
class MovePlan(Document):
    """Plan of a move, computed once and shown before its start.

    ``findings``: waiting cannot end those that block; the move does not start while one remains.
    ``blocking``, ``warnings``: their lines, each with its action.
    ``settings``: values of both flows by flow and field, with which its steps are carried out.
    ``redirect``, ``fence``: redirectors in order, and write fence; requested or configured.
    ``homes``: clusters whose clients without a route go to the target.
    """

    KIND = "stored move plan"
    move_id: str
    created_ms: int
    request: MoveRequest
    topics: tuple[str, ...]
    groups: tuple[GroupPlan, ...]
    findings: tuple[Finding, ...]
    settings: Mapping[str, Mapping[str, str]]
    redirect: tuple[RedirectKind, ...] = ROUTING_ALONE
    fence: FenceKind = "none"
    forecast: Forecast | None = None
    homes: tuple[str, ...] = ()
    blocking: tuple[str, ...] = field(init=False, default=())
    warnings: tuple[str, ...] = field(init=False, default=())

    def __post_init__(self) -> None:
        for name, blocks in (("blocking", True), ("warnings", False)):
            texts = tuple(each.line for each in self.findings if each.blocks is blocks)
            object.__setattr__(self, name, texts)

    @property
    def group_names(self) -> tuple[str, ...]:
        return tuple(group.group for group in self.groups)

    def without(self, groups: Collection[str]) -> Self:
        """Return the plan as it is carried out without some groups.

        An unplanned move redirects those that it cannot set, too.
        """
        if self.request.is_unplanned or not groups:
            return self
        return replace(self, groups=tuple(one for one in self.groups if one.group not in groups))

    @property
    def subjects(self) -> tuple[str, ...]:
        return subjects_of(self.topics, self.group_names)

    @property
    def home_subjects(self) -> tuple[str, ...]:
        """Subjects of unrouted clients, if redirected; not held: no plan or gate knows them."""
        return tuple(map(home_subject, self.homes))

    @property
    def accepted_rpo(self) -> int | None:
        """Records that an approval of an unplanned move accepts to lose; None: no bound is known.

        The forecast's upper bound, grown at its rate for the time limit of the move, a minute or
        more.
        """
        found = self.forecast
        return None if found is None else found.grown(max(60.0, self.request.wait_seconds))

    def numbers(self) -> dict[str, int | float | None]:
        if self.forecast is not None:
            return {**self.forecast.numbers(), ACCEPTED_RPO: self.accepted_rpo}
        groups = self.groups
        return {
            "groups": len(groups),
            "members": sum(len(group.members) for group in groups),
            "lag": sum(group.lag for group in groups),
            "records_read_again": sum(group.re_read for group in groups),
            "records_skipped": sum(group.total_skipped for group in groups),
        }

    def summary(self) -> str:
        if self.forecast is not None:
            return self.forecast.line(self.request.source)
        found = self.numbers()
        return (
            f"{self.request.operation} {self.request.flow} of {amount(len(self.groups), 'group')}: "
            f"{amount(sum(group.lag for group in self.groups), 'record')} still to read, "
            f"{found['records_read_again']} read again, {found['records_skipped']} skipped"
        )

    @classmethod
    @lru_cache(maxsize=4)
    def decode(cls, value: bytes) -> Self:
        """Decode :meth:`value`; cached, as each step reads its plan several times."""
        return decode(cls, cls.KIND, value)


def with_costs(seen: Iterable[GroupPlan], known: Iterable[GroupPlan]) -> Iterator[GroupPlan]:
    """Yield the groups of a look, with the costs of an earlier one that applied offsets hide."""
    rows = {(one.group, row.target): row for one in known for row in one.positions}
    for one in seen:
        both = [(row, rows.get((one.group, row.target), row)) for row in one.positions]
        kept = (
            replace(before, committed=now.committed, lag=now.lag, resume=now.resume)
            if (before.re_read, before.skipped) > (now.re_read, now.skipped)
            else now
            for now, before in both
        )
        yield replace(one, positions=tuple(kept))


_REMEDIES: Mapping[str, str] = {
    "no-map": "is the replication running? see srm status --flow '{flow}'",
    "damaged-map": "restart the replicator of the topic, it finds the records again in both logs",
    "no-target": "create it with srm topics sync --flow '{flow}', and let its replicator copy it",
    "past-end": "",  # its reason says what to do
}


def offsets_to_write(positions: Iterable[PartitionMove]) -> dict[str, int]:
    return {str(one.target): one.resume for one in positions if one.resume is not None}


def state_remedy(state: str, flow: Flow) -> str:
    """Return the remedy for a state of a position that waiting cannot end, else empty."""
    return _REMEDIES.get(state, "").format(flow=flow)


def position_problem(group: str, position: PartitionMove, request: MoveRequest) -> Finding | None:
    """Return why a position cannot be moved as it is; not copied yet is not a reason."""
    where = f"group {group}, {position.name}"
    commit = f"committed offset {position.committed} on {request.source}"
    if position.state in _REMEDIES:
        remedy = state_remedy(position.state, request.flow)
        text = message(f"{where}: {commit} cannot be translated, {position.reason}", remedy)
        return problem("untranslated", text, remedy)
    if position.state == "conflict" and not request.overwrite:
        return problem(
            "conflict",
            f"{where}: its own consumer committed {position.target_committed} of "
            f"{position.target_topic} on {request.target}, ahead of the translated "
            f"{position.resume}{position.reason and f' ({position.reason})'}: let it catch up on "
            f"{request.source}, reset that offset, or --overwrite it (in the form: overwrite)",
        )
    # Groups cannot catch up on an abandoned source: the forecast counts the skipped records.
    if position.not_there and not request.accept_skips and not request.is_unplanned:
        return problem(
            "skips",
            f"{where}: the group would skip {amount(position.not_there, 'record')} "
            f"it has still to read ({position.reason}): let it catch up on {request.source}, or "
            f"accept that with --accept-skips (in the form: accept_skips)",
        )
    return None
