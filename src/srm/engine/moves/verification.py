"""Verification and report after go: groups that work on the target, and writes to the source."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final

from srm.domain.moves.gate import asks_at_go
from srm.domain.moves.plan import MovePlan
from srm.domain.moves.progress import GroupResume, MoveProgress, Straggler
from srm.domain.moves.report import MoveReport, residue_until_ms
from srm.domain.moves.routing import LEASE_MS, group_subject
from srm.domain.names.topics import TopicPartition
from srm.domain.offset_map.map_loader import Wanted
from srm.engine.flows.cluster_absence import loudness
from srm.engine.flows.source_look import partitions_of
from srm.engine.groups.checkpoints import of_all, per_group, read_ledger
from srm.engine.moves.effects import call_redirectors, lift_late_fence
from srm.engine.moves.facts import topic_pairs
from srm.engine.moves.gate_reading import address_of_target, by_name
from srm.engine.moves.records import ControlChange, MoveContext, MoveStore
from srm.engine.moves.registers import record
from srm.engine.moves.reporting import (
    Arrivals,
    TargetRecords,
    keep_report,
    written_between,
)
from srm.engine.ports import FlowMaps
from srm.errors import ConflictError, UnavailableError

log = logging.getLogger(__name__)

_FIRST_RECORD_MS: Final = 10_000
"""Wait for a group with members to process a record: twice the default of
auto.commit.interval.ms. The residue watch finds later ones."""

_CALL_AGAIN_MS: Final = 5_000
_MOST_MEMBERS: Final = 20


@dataclass(frozen=True, slots=True)
class VerifyStatus:
    """Result of one look after go.

    ``done``: every group with members at the hold has resumed. It has also processed a record,
    unless there is none or the time limit is over.
    ``waiting``: what the move still waits for; ``asks``: tasks for clients without a redirector.
    ``residue``: records written to the source after go, by topic.
    """

    move_id: str
    done: bool
    waiting: tuple[str, ...]
    groups: Mapping[str, GroupResume]
    residue: Mapping[str, int]
    elapsed_seconds: float
    timed_out: bool
    asks: tuple[str, ...] = ()


def verify(context: MoveContext, move_id: str) -> VerifyStatus:
    """Check once if groups resumed where planned, count residue, and call late redirectors again.

    Repeat until ``done`` or ``timed_out``.
    """
    plan, progress = MoveStore(context).load(move_id)
    if not progress.is_decided:
        raise ConflictError(
            f"move {move_id} is at step {progress.step}; verify works only after go"
        )
    lift_late_fence(context, plan)
    unconfirmed = call_redirectors(context, plan, again_after_ms=_CALL_AGAIN_MS)
    if len(plan.redirect) > 1:
        progress = MoveStore(context).progress(move_id)  # with their confirmations
    now = context.now_ms()
    seen = observe(context, plan, progress, plan.group_names)
    noted = seen.progress
    elapsed = max(0, now - noted.times_ms.get("gone", now)) / 1000
    in_time = elapsed <= plan.request.resume_seconds
    absent = tuple(_absent(plan, noted))
    # A group that is present but has processed nothing in time is not a failure of the move.
    waiting = absent + ((*_idling(plan, seen), *unconfirmed) if in_time else ())
    if not waiting or not in_time:
        noted = look_for_stragglers(context, plan, seen)
    if not waiting and noted.step == "gone":
        noted = noted.at("verified", now)
    if noted is not progress:
        record(context, ControlChange(progress=(noted,)))
    return VerifyStatus(
        move_id=move_id,
        done=not waiting,
        waiting=waiting,
        groups=noted.resumed,
        residue=noted.residue,
        elapsed_seconds=elapsed,
        timed_out=bool(waiting) and not in_time,
        asks=tuple(_asks(context, plan, noted)) if "manual" in plan.redirect else (),
    )


@dataclass(frozen=True)
class VerifyLook:
    """One look after go at ``clock_ms``, by the hold's clock; ``ours`` follow no later move."""

    progress: MoveProgress
    clock_ms: int
    ours: tuple[str, ...]


def observe(
    context: MoveContext, plan: MovePlan, progress: MoveProgress, groups: Collection[str]
) -> VerifyLook:
    """Look at some groups of a move after go, and at its source; nothing is written."""
    # Before the routes: records written while they were still this move's are residue. And before
    # the clock and the acknowledgements: findings here existed at that time.
    ends = _source_ends(context, plan)
    described = context.target.groups(list(groups)) if groups else {}
    active = {name for name, found in described.items() if found.state == "active"}
    offsets = of_all(context.target.commits_of(groups))
    arrivals = Arrivals(context, plan, progress, ask_clock=bool(groups))
    now = context.now_ms()
    # Records written to an abandoned source since are found when it returns.
    watched = not plan.request.is_unplanned and not progress.residue_over
    ours = arrivals.producers_are_ours and watched
    resumed = _read_resumed(context, plan, progress, arrivals, active, offsets)
    found: dict[str, Any] = {
        "resumed": {**progress.resumed, **resumed},
        "residue": _residue(context, progress, ends) if ours else dict(progress.residue),
        "gone_stamp_ms": progress.gone_stamp_ms or arrivals.gone_ms,
        "residue_over": not ours or now >= residue_until_ms(plan, progress),
    }
    if progress.late_ms is None and progress.renewed_stamp_ms is not None and groups:
        found["late_ms"] = arrivals.now_ms - progress.renewed_stamp_ms - LEASE_MS
    noted = progress.noting(**found)
    if _news(noted) == _news(progress):
        noted = progress
    elif ours and ends is not None:
        noted = replace(noted, residue_seen_ms=now)
    groups_of_ours = tuple(group for group in plan.group_names if arrivals.is_ours(group))
    return VerifyLook(noted, arrivals.now_ms, groups_of_ours if watched else ())


def look_for_stragglers(context: MoveContext, plan: MovePlan, seen: VerifyLook) -> MoveProgress:
    """Find members and changed commits on the source after go, except srm's own commits."""
    progress, found = seen.progress, dict(seen.progress.stragglers)
    topics = {pair.topic for pair in topic_pairs(context, plan.topics)}
    try:
        described = context.source.groups(seen.ours) if seen.ours else {}
        committed, unread = per_group(context.source.commits_of(seen.ours))
        ledger = read_ledger(context.source, context.source.topics())
    except UnavailableError as error:
        log.log(loudness(error), "readers on %s are unknown: %s", context.source.alias, error)
        return progress
    for group, reason in unread.items():
        log.warning("commits of group %s on %s: %s", group, context.source.alias, reason.text)
    for group, offsets in committed.items():
        before, at_go = found.get(group, Straggler()), progress.commits_at_go.get(group, {})
        moved = {
            str(place): (at_go.get(str(place)), offset)
            for place, offset in offsets.items()
            if place.topic in topics and at_go.get(str(place)) != offset
            if not ((entry := ledger.entry(group, place)) and entry.owns(offset))
        }
        members = (*before.members, *described[group].members)
        now = Straggler(tuple(dict.fromkeys(members))[:_MOST_MEMBERS], {**moved, **before.commits})
        if now != Straggler():
            found[group] = now
    return progress if found == progress.stragglers else progress.noting(stragglers=found)


def _news(progress: MoveProgress) -> MoveProgress:
    """Return the progress without commits, which change all the time and are not worth a record."""
    resumed = {group: replace(seen, committed={}) for group, seen in progress.resumed.items()}
    return replace(progress, revision=0, resumed=resumed)


def _absent(plan: MovePlan, progress: MoveProgress) -> Iterator[str]:
    for group in _find_waited_for(plan, progress):
        if progress.resumed[group].resumed_ms is None:
            yield f"group {group} has no members on {plan.request.target} yet"


def _asks(context: MoveContext, plan: MovePlan, progress: MoveProgress) -> Iterator[str]:
    absent = {
        group.group: group.members
        for group in plan.groups
        if progress.resumed[group.group].resumed_ms is None
    }
    return asks_at_go(plan.request, address_of_target(context), absent, progress.residue)


def _idling(plan: MovePlan, seen: VerifyLook) -> Iterator[str]:
    for group in _find_waited_for(plan, seen.progress):
        found = seen.progress.resumed[group]
        since = found.resumed_ms
        if since is not None and not found.has_settled and seen.clock_ms - since < _FIRST_RECORD_MS:
            yield (
                f"group {group} has members on {plan.request.target} and has not processed "
                f"anything yet"
            )


def _find_waited_for(plan: MovePlan, progress: MoveProgress) -> Iterator[str]:
    return (
        group
        for group in plan.group_names
        if progress.members_at_hold.get(group, 0)
        and group_subject(group) not in progress.superseded
    )


def _read_resumed(
    context: MoveContext,
    plan: MovePlan,
    progress: MoveProgress,
    arrivals: Arrivals,
    active: Collection[str],
    offsets: Mapping[str, Mapping[TopicPartition, int]],
) -> dict[str, GroupResume]:
    commits = {group: by_name(some) for group, some in offsets.items()}
    result = {group: progress.resumed.get(group, GroupResume()) for group in commits}
    # After a later move a group's commits do not count for this one.
    ours = {group: arrivals.of(group) for group in commits if arrivals.is_ours(group)}
    places = [
        (commits[group], progress.intended.get(group, {}), result[group].started, said.started)
        for group, (said, _) in ours.items()
    ]
    records = TargetRecords(context, plan, chain.from_iterable(places))
    for group, (said, has_arrived) in ours.items():
        before, committed = result[group], commits[group]
        intended = progress.intended.get(group, {})
        present = has_arrived or group in active
        moved = any(committed.get(name, offset) != offset for name, offset in intended.items())
        started = {
            name: min(before.started.get(name, offset), offset)
            for name, offset in {**before.started, **said.started}.items()
        }
        found = replace(
            before,
            resumed_ms=_earliest(
                before.resumed_ms, said.resumed_ms or (arrivals.now_ms if present else None)
            ),
            processed_ms=_earliest(before.processed_ms, said.processed_ms),
            first_commit_ms=before.first_commit_ms or (arrivals.now_ms if moved else None),
            started=started,
            committed=committed,
            uncommitted={**said.uncommitted, **before.uncommitted},
            re_read=max(before.re_read, records.count_before(intended, started, committed)),
            skipped=max(before.skipped, records.count_after(intended, started)),
        )
        if found.resumed_ms is not None and not found.has_settled:
            found = replace(found, idle=not records.any_after(intended))
        result[group] = found
    return result


def _earliest(*times_ms: int | None) -> int | None:
    return min((time_ms for time_ms in times_ms if time_ms is not None), default=None)


def _source_ends(context: MoveContext, plan: MovePlan) -> Mapping[TopicPartition, int] | None:
    """Return the high watermarks of the source; None if it is unavailable."""
    try:
        return context.source.high_watermarks(partitions_of(context.source.topics(), plan.topics))
    except UnavailableError as error:
        log.log(loudness(error), "residue on %s cannot be counted: %s", context.source.alias, error)
        return None


def _residue(
    context: MoveContext, progress: MoveProgress, ends: Mapping[TopicPartition, int] | None
) -> dict[str, int]:
    """Count records written to the source after go; unchanged if the source is unavailable."""
    if ends is None:
        return dict(progress.residue)
    starts = progress.log_ends_at_go
    grown = {tp: end for tp, end in ends.items() if end > starts.get(str(tp), 0)}
    wanted = {tp: Wanted.of([end, starts.get(str(tp), 0)]) for tp, end in grown.items()}
    topics = {tp.topic for tp in grown}
    maps = context.forward.maps.load(topics, wanted) if topics else FlowMaps({})
    residue: dict[str, int] = {}
    for tp, end in grown.items():
        count = written_between(maps.get(tp), starts.get(str(tp), 0), end)
        residue[tp.topic] = residue.get(tp.topic, 0) + count
    return residue


def report(context: MoveContext, move_id: str) -> MoveReport:
    """Compute the report of a move at its present step and store it."""
    plan, progress = MoveStore(context).load(move_id)
    if progress.step in {"gone", "verified"}:
        progress = progress.at("reported", context.now_ms())
    return keep_report(context, plan, progress)


def watch_residue(context: MoveContext, move_id: str) -> MoveReport:
    """Look once for writes and reads on the source after go, and update the report.

    Groups that had not yet processed records when the report was made are looked at again. Repeat
    until its ``residue_over``: the time of the request has passed, or another move has held or
    redirected the producers. After that only an approval or the outcome of a disaster is news.
    """
    plan, progress = MoveStore(context).load(move_id)
    if not progress.is_decided:
        raise ConflictError(
            f"move {move_id} is at step {progress.step}; residue exists only after go"
        )
    if not progress.residue_over:
        open_groups = [
            group
            for group in plan.group_names
            if not progress.resumed.get(group, GroupResume()).has_settled
        ]
        progress = look_for_stragglers(context, plan, observe(context, plan, progress, open_groups))
    return keep_report(context, plan, progress)
