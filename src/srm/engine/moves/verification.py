"""After go: groups that work on the target, writes to the source, and the report with evidence.

The report is stored as a chain of signed revisions, with the approvals of the move. Evidence:
acknowledgements of clients, and counts of records on the target. Clients' wall clocks may be wrong
by hours, so no measurement uses them. ``__srm-clients`` has LogAppendTime, so brokers stamp all
acknowledgements. The age of a state is measured by the client's monotonic clock (Ack.ages_ms).
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any, Final, get_args

from srm.domain.groups.translation import Direction
from srm.domain.moves.announcements import AckState, StampedAck
from srm.domain.moves.gate import requests_at_go
from srm.domain.moves.line import MoveLine
from srm.domain.moves.plan import MovePlan
from srm.domain.moves.progress import GroupResume, MoveProgress, Straggler, WaitNote, earliest
from srm.domain.moves.report import (
    Approval,
    Follower,
    MoveReport,
    approval_key,
    build_report,
    followers_of,
    join_approvals,
    members_of,
    residue_until_ms,
)
from srm.domain.moves.revisions import KeptReport, next_revision, report_key
from srm.domain.moves.routing import ERA, LEASE_MS, group_subject, topic_subject
from srm.domain.moves.whereabouts import Whereabouts
from srm.domain.names.topics import TopicPartition
from srm.domain.text.amount import excerpt
from srm.domain.text.documents import encode
from srm.engine.cluster_ports import Cluster, loudness, tolerate
from srm.engine.control.originals import LED, original_findings
from srm.engine.flows.source_look import partitions_of
from srm.engine.groups.checkpoints import per_group
from srm.engine.groups.ledger import read_ledger
from srm.engine.groups.translate import Maps, WantedMaps, partition_facts
from srm.engine.moves.attempt import InForce
from srm.engine.moves.context import MoveContext
from srm.engine.moves.effects import call_redirectors, fence_if_possible
from srm.engine.moves.facts import Offsets, TopicPair, topic_pairs
from srm.engine.moves.gate import address_of_target, by_name
from srm.engine.moves.history import ClientsHistory, RoutingTables
from srm.engine.moves.registers import Registers, record, transact
from srm.engine.moves.store import MoveStore, write_note
from srm.engine.moves.surroundings import absent_on
from srm.engine.moves.tables import ControlChange, ControlTables
from srm.engine.ports import FlowMaps
from srm.errors import (
    AuthorizationError,
    ConflictError,
    NotFoundError,
    SrmError,
    UnavailableError,
)
from srm.logs import warn_once

log = logging.getLogger(__name__)

_Ranges = Mapping[TopicPartition, tuple[int, int]]
_FIRST_RECORD_MS: Final = 10_000
"""Wait for a group with members to process a record, and for a producer to write one: twice the
default of auto.commit.interval.ms. The residue watch finds later ones."""


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
    plan, progress = MoveStore.read(context).load(move_id)
    if not progress.is_decided:
        raise ConflictError(
            f"move {move_id} is at step {progress.step}; verify works only after go"
        )
    if plan.fence == "acl" and InForce.read(context, plan).later:
        fence_if_possible(context, plan, sets=False)  # a killed process may have left a late one
    unconfirmed = call_redirectors(context, plan, again_after_ms=5_000)
    if len(plan.redirect) > 1:
        progress = MoveStore.read(context).progress(move_id)  # with their confirmations
    now = context.now_ms()
    arrivals, noted = observe(context, plan, progress, plan.group_names)
    elapsed = max(0, now - noted.times_ms.get("gone", now)) / 1000
    in_time = elapsed <= plan.request.resume_seconds
    absent, idling = _waiting(arrivals, noted)
    # A group that is present but has processed nothing in time is not a failure of the move.
    waiting = (*absent, *((*idling, *unconfirmed) if in_time else ()))
    if not waiting or not in_time:
        noted = look_for_stragglers(context, arrivals, noted)
    if not waiting and noted.step == "gone":
        noted = noted.at("verified", now)
    if noted is not progress:
        record(context, ControlChange(progress=(noted,)))
    if waiting and in_time:
        some = excerpt(waiting, 5)
        write_note(context, WaitNote(move_id, noted.attempt, now, some, carrier=context.process))
    return VerifyStatus(
        move_id=move_id,
        done=not waiting,
        waiting=waiting,
        groups=noted.resumed,
        residue=noted.residue,
        elapsed_seconds=elapsed,
        timed_out=bool(waiting) and not in_time,
        asks=tuple(_requests(context, arrivals, noted)) if "manual" in plan.redirect else (),
    )


def observe(
    context: MoveContext, plan: MovePlan, progress: MoveProgress, groups: Collection[str]
) -> tuple[Arrivals, MoveProgress]:
    """Look at some groups of a move after go, and at its source; nothing is written."""
    # Before the routes: records written while they were still this move's are residue. And before
    # the clock and the acknowledgements: findings here existed at that time.
    grown = _growth(context, plan, progress)
    described = context.target.groups(list(groups)) if groups else {}
    active = {name for name, found in described.items() if found.state == "active"}
    read = _readable_commits(context.target, groups)
    offsets = {group: read.get(group, {}) for group in groups}
    arrivals = Arrivals(context, plan, progress)
    now = arrivals.now_ms
    back = arrivals.now.returned
    led_back = bool(plan.topics) and back >= {*map(topic_subject, plan.topics)}
    over = progress.residue_over or led_back
    ours = arrivals.watches_source and not over
    left = {tp: of for tp, of in (grown or {}).items() if topic_subject(tp.topic) not in back}
    resumed = _read_resumed(context, arrivals, active, offsets)
    known = {**progress.resumed, **resumed}
    late = {group: arrivals.of(group)[0] for group in arrivals.ours(known.keys() - resumed.keys())}
    found: dict[str, Any] = {
        "resumed": known | {group: known[group].losing(said) for group, said in late.items()},
        "residue": _residue(context, progress, left) if ours else dict(progress.residue),
        "gone_stamp_ms": progress.gone_stamp_ms or arrivals.gone_ms,
        "residue_over": over or now >= residue_until_ms(plan, progress),
    }
    if progress.late_ms is None and progress.renewed_stamp_ms is not None and groups:
        found["late_ms"] = arrivals.now_ms - progress.renewed_stamp_ms - LEASE_MS
    noted = progress.noting(**found)
    if _news(noted) == _news(progress):
        noted = progress
    elif ours and grown is not None:
        noted = replace(noted, residue_seen_ms=now)
    return arrivals, noted


def look_for_stragglers(
    context: MoveContext, arrivals: Arrivals, progress: MoveProgress
) -> MoveProgress:
    """Find members and changed commits on the source after go, except srm's own commits."""
    plan, found = arrivals.plan, dict(progress.stragglers)
    groups = arrivals.ours(plan.group_names if arrivals.watches_source else ())
    topics = {pair.topic for pair in topic_pairs(context, plan.topics)}
    try:
        described = context.source.groups(groups) if groups else {}
        known = context.source.topics()
        earlier = read_ledger(context.source, known)
        committed = _readable_commits(context.source, groups)
        ledger = read_ledger(context.source, known)
    except UnavailableError as error:
        log.log(loudness(error), "readers on %s are unknown: %s", context.source.alias, error)
        return progress
    for group, offsets in committed.items():
        before, at_go = found.get(group, Straggler()), progress.commits_at_go.get(group, {})
        # Other moves may have sent the producers of topics that it reads.
        read = topics | {TopicPartition.parse(name).topic for name in at_go}
        moved = {
            str(place): (at_go.get(str(place)), offset)
            for place, offset in offsets.items()
            if place.topic in read and at_go.get(str(place)) != offset
            if not ((entry := ledger.entry(group, place)) and entry.owns(offset))
            if entry == earlier.entry(group, place)  # else group sync writes there, look again
        }
        members = (*before.members, *described[group].members)
        now = Straggler(tuple(dict.fromkeys(members))[:20], {**moved, **before.commits})
        if now != Straggler():
            found[group] = now
    return progress if found == progress.stragglers else progress.noting(stragglers=found)


def _readable_commits(cluster: Cluster, groups: Collection[str]) -> Mapping[str, Offsets]:
    """Return the commits of groups; one that cannot be read is left out and logged once."""
    committed, unread = per_group(cluster.commits_of(groups))
    for group, reason in unread.items():
        warn_once(log, f"commits of group {group} on {cluster.alias}: {reason.text}")
    return committed


def _news(progress: MoveProgress) -> MoveProgress:
    """Return the progress without commits, which change all the time and are not worth a record."""
    resumed = {group: replace(seen, committed={}) for group, seen in progress.resumed.items()}
    return replace(progress, revision=0, resumed=resumed)


def _requests(context: MoveContext, arrivals: Arrivals, progress: MoveProgress) -> Iterator[str]:
    plan, now = arrivals.plan, arrivals.now
    # Groups without members may rest; which of them had some on a lost source is not known.
    absent = {
        group.group: group.members
        for group in plan.groups
        if now.leads(group_subject(group.group))
        if progress.resumed[group.group].resumed_ms is None
        if group.members or plan.request.is_unplanned or progress.members_at_hold.get(group.group)
    }
    residue = {t: count for t, count in progress.residue.items() if now.leads(topic_subject(t))}
    return requests_at_go(plan.request, address_of_target(context), absent, residue)


def _waiting(arrivals: Arrivals, progress: MoveProgress) -> tuple[list[str], list[str]]:
    """Return a reason for each group without members, and for each client without a record yet."""
    where = f"members on {arrivals.plan.request.target}"
    absent, idling = list[str](), list[str]()
    for group in arrivals.ours(one for one, had in progress.members_at_hold.items() if had):
        found = progress.resumed[group]
        if found.resumed_ms is None:
            absent.append(f"group {group} has no {where} yet")
        elif not found.has_settled and arrivals.now_ms - found.resumed_ms < _FIRST_RECORD_MS:
            idling.append(f"group {group} has {where} and has not processed anything yet")
    for one in arrivals.unwritten():
        resumed_ms = one.at_ms("resumed")
        if resumed_ms is not None and arrivals.now_ms - resumed_ms < _FIRST_RECORD_MS:
            idling += (f"producer {one.ack.client} waits: {reason}" for reason in one.ack.unwritten)
    return absent, idling


def _read_resumed(
    context: MoveContext,
    arrivals: Arrivals,
    active: Collection[str],
    offsets: Mapping[str, Offsets],
) -> dict[str, GroupResume]:
    plan, progress = arrivals.plan, arrivals.progress
    commits = {group: by_name(some) for group, some in offsets.items()}
    result = {g: progress.resumed.get(g, GroupResume(committed=at)) for g, at in commits.items()}
    # After a later move a group's commits do not count for this one.
    ours = {group: arrivals.of(group) for group in arrivals.ours(commits)}
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
        moved |= not intended and committed != before.committed
        started = {
            name: min(before.started.get(name, offset), offset)
            for name, offset in {**before.started, **said.started}.items()
        }
        # From where it was seen to its intended offset, and from that to where it started.
        again = {
            name: min(started.get(name, at), committed.get(name, at))
            for name, at in intended.items()
        }
        re_read = sum(records.count(name, again[name], at) for name, at in intended.items())
        passed = (records.count(name, at, started.get(name, at)) for name, at in intended.items())
        found = replace(
            before,
            resumed_ms=earliest(
                before.resumed_ms, said.resumed_ms or (arrivals.now_ms if present else None)
            ),
            processed_ms=earliest(before.processed_ms, said.processed_ms),
            first_commit_ms=before.first_commit_ms or (arrivals.now_ms if moved else None),
            started=started,
            committed=committed,
            uncommitted=before.losing(said).uncommitted,
            re_read=max(before.re_read, re_read),
            skipped=max(before.skipped, sum(passed)),
        )
        if found.resumed_ms is not None and not found.has_settled:
            to_read = [records.count(*one) for one in {**started, **intended}.items()]
            found = replace(found, idle=bool(to_read) and not any(to_read))
        result[group] = found
    return result


def _growth(context: MoveContext, plan: MovePlan, progress: MoveProgress) -> _Ranges | None:
    """Return what the source's logs have taken since go: all of a topic that was created again."""
    source, ids = context.source, progress.topic_ids_at_go

    def look() -> _Ranges:
        topics = source.topics()
        ends = source.high_watermarks(partitions_of(topics, plan.topics))
        same = {name for name, one in topics.items() if ids.get(name, one.topic_id) == one.topic_id}
        starts = {tp: progress.log_ends_at_go.get(str(tp), 0) for tp in ends if tp.topic in same}
        return {tp: (starts.get(tp, 0), end) for tp, end in ends.items() if end > starts.get(tp, 0)}

    return tolerate(look, f"residue on {source.alias} cannot be counted")


def _residue(context: MoveContext, progress: MoveProgress, grown: _Ranges) -> dict[str, int]:
    """Count records written to the source after go; unchanged if a cluster is unavailable.

    Where both flows copy into one name, what neither map covers yet may be copies.
    """
    shared = {tp for tp in grown if context.forward.config.names.is_shared(tp.topic)}
    wanted, target = WantedMaps(), context.target.alias
    for tp, (start, end) in grown.items():
        wanted.add("forward", (tp, {tp: start}), (tp, {}), [end], is_shared=tp in shared)
    trouble = f"residue of move {progress.move_id} is unknown"
    if (maps := tolerate(lambda: wanted.load(context.forward), trouble)) is None:
        return dict(progress.residue)
    residue = Counter[str]()
    for tp, (start, end) in grown.items():
        facts = partition_facts(maps, "forward", (tp, {}), (tp, {}), target, is_shared=tp in shared)
        to = end
        if facts.back is not None:
            known = facts.offset_map.known_source_end, facts.back.offset_map.known_target_end
            to = min(end, max(at or 0 for at in known))
        residue[tp.topic] += facts.records_upstream(start, to)
    return {**progress.residue, **residue}


def report(context: MoveContext, move_id: str) -> MoveReport:
    store = MoveStore.read(context)
    if (final := _final(store, move_id)) is not None:
        return final
    plan, progress = store.load(move_id)
    if progress.step in {"gone", "verified"}:
        progress = progress.at("reported", context.now_ms())
    return keep_report(context, plan, progress)


def _final(store: MoveStore, move_id: str) -> MoveReport | None:
    """Return the report of a move that has ended, even unwatched; None while it may change."""
    line, kept = store.line(move_id), store.report(move_id)
    if kept is None or line is None or not line.ended:
        return None
    return replace(kept.report, residue_over=True)


def watch_residue(context: MoveContext, move_id: str) -> MoveReport:
    """Look once for writes and reads on the source after go, and update the report.

    Groups that had not yet processed records when the report was made are looked at again. Repeat
    until its ``residue_over``: the time of the request has passed, or later moves have led all
    producers back. Then the move ends, an unplanned one with the outcome of its disaster: this and
    the line are all that is kept.
    """
    store = MoveStore.read(context)
    if (final := _final(store, move_id)) is not None:
        return final
    plan, progress = store.load(move_id)
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
        seen = observe(context, plan, progress, open_groups)
        progress = look_for_stragglers(context, *seen)
    return keep_report(context, plan, progress)


def keep_report(context: MoveContext, plan: MovePlan, progress: MoveProgress) -> MoveReport:
    """Store progress and report if changed, as the next revision; return the report."""
    known = MoveStore.read(context)
    seen = not progress.residue_over or known.report(plan.move_id) is None
    followers = _followers(context, plan, progress) if seen and progress.attempt else ()
    kept = known.report(plan.move_id)
    missing = _missing(context, plan, kept.report if kept else None) if progress.is_decided else ()
    clusters = _cluster_ids(context)
    key = context.notary.key()

    def next_of(store: MoveStore) -> KeptReport:
        # Another process's progress counts if it is further, or the stored one if equal.
        latest = max(store.progress(plan.move_id), progress, key=lambda one: one.rank)
        outcome, rivals = store.outcome(plan.move_id), _rivals(store, plan, progress)
        report = replace(
            build_report(plan, latest, outcome, (*rivals, *missing), store.plan_at_go(plan)),
            approvals=store.approvals(plan.move_id),
            followers=followers,
            clusters=clusters,
            versions=context.notary.versions,
            config_sha256=context.notary.config_sha256,
        )
        return next_revision(store.report(plan.move_id), report, context.now_ms(), key)

    def change_to(kept: KeptReport) -> ControlChange:
        documents = {report_key(plan.move_id): kept.signed.value()}
        is_final = kept.report.residue_over and progress.is_decided
        if is_final and (kept.report.outcome is not None or not plan.request.is_unplanned):
            return ControlChange(documents=documents, lines=(MoveLine.of(plan, progress).end(),))
        return ControlChange(progress=(progress,), documents=documents)

    made = next_of(known)
    change = change_to(made)
    if all(ControlTables(moves=one).new_part(change) == ControlChange() for one in known.tables):
        return made.report

    def write(registers: Registers) -> MoveReport:
        registers.require("target")
        if (final := _final(registers.store, plan.move_id)) is not None:
            return final  # another process has ended the move since it was read
        kept = next_of(registers.store)
        registers.write_both(change_to(kept))
        return kept.report

    return transact(context, "writing the report of a move", write)


def kept_report(context: MoveContext, move_id: str) -> KeptReport:
    """Return the newest stored revision of a report; clients and groups are not looked at."""
    store = MoveStore.read(context)
    if (kept := store.report(move_id)) is None:
        lists = f"'{context.command('report --list')}' lists the stored ones"
        raise NotFoundError(f"no report of move {move_id!r} on {store.where}; {lists}")
    return kept


def kept_reports(context: MoveContext) -> tuple[KeptReport, ...]:
    """Return the newest revision of each stored report, the oldest move first."""
    store = MoveStore.read(context)
    names = {move_id for table in store.tables for move_id in table.names(report_key(""))}
    known = filter(None, map(store.report, names))
    return tuple(sorted(known, key=lambda kept: (kept.report.created_ms, kept.report.move_id)))


def _missing(context: MoveContext, plan: MovePlan, kept: MoveReport | None) -> tuple[str, ...]:
    """Return a problem for each topic that the target lacks though this move leads producers to it.

    Only the target is read: the source may be lost. A report after the last look keeps its own.
    """
    if kept is not None and kept.residue_over:
        return tuple(line for line in kept.problems if LED in line)

    def look() -> tuple[str, ...]:
        pairs = topic_pairs(context, plan.topics)
        found = absent_on(context, pairs, context.target.topics(), None)
        now = InForce.read(context, plan) if found.create else None
        led = [one for one in found.create if now and now.leads(topic_subject(one.name))]
        planned = replace(found, create=tuple(led))
        problems = original_findings(context.forward, planned, [one.name for one in led])
        return tuple(one.line for one in problems if one.blocks)

    unknown = f"topics of move {plan.move_id} that {context.target.alias} lacks are not known"
    return tolerate(look, unknown, AuthorizationError) or ()


def _rivals(store: MoveStore, plan: MovePlan, progress: MoveProgress) -> Iterator[str]:
    """Yield a problem for each move that saw the other side only: both are unplanned."""
    for one in (line.progress for line in store.lines() if line.move_id != plan.move_id):
        first, second = sorted((one, progress), key=lambda each: each.attempt)
        if not one.is_decided or first.attempt % ERA or second.knew >= first.attempt:
            continue
        other, flow = store.view(one.move_id)[0], plan.request.flow
        if other.request.source != flow.source and other.request.flow.reverse != flow:
            continue  # it is of other clients
        if {*other.subjects} & {*plan.subjects}:
            yield (
                f"move {one.move_id} sent clients of this one to {other.request.target}, neither "
                f"saw the other; clients follow the later one. Agree on one side and move them"
            )


def _followers(
    context: MoveContext, plan: MovePlan, progress: MoveProgress
) -> tuple[Follower, ...]:
    arrivals = Arrivals(context, plan, progress)
    said = arrivals.followers()
    groups = arrivals.ours(plan.group_names if progress.is_decided else ())
    described = context.target.groups(groups) if groups else {}
    others = ", ".join(kind for kind in plan.redirect if kind != "routing")
    silent = (
        members_of(group_subject(group), found.members, said, others)
        for group, found in described.items()
    )
    return (*said, *chain.from_iterable(silent))


def _cluster_ids(context: MoveContext) -> dict[str, str]:
    found = {}
    for cluster in (context.source, context.target):  # the report is complete without them
        trouble = f"the id of cluster {cluster.alias} is not known"
        if (known := tolerate(cluster.cluster_id, trouble, SrmError)) is not None:
            found[cluster.alias] = known
    return found


def approve(context: MoveContext, move_id: str, approval: Approval) -> tuple[Approval, ...]:
    """Store an approval with the plan that it approves; return all of the move, the oldest first.

    Call it after the plan is stored and before the move holds clients; repeated, it changes
    nothing.
    """

    def write(registers: Registers) -> tuple[Approval, ...]:
        registers.require("target")
        registers.store.require_open(move_id)
        if registers.store.plan(move_id) is None:
            raise NotFoundError(f"move {move_id!r} is not known: plan it, then approve it")
        known = join_approvals(registers.store.approvals(move_id), (approval,))
        documents = {approval_key(move_id): encode(known)}
        registers.write_both(ControlChange(documents=documents))
        return known

    return transact(context, f"approval of move {move_id}", write)


class Arrivals:
    """One look at the routes and announcements of both clusters, if available."""

    def __init__(self, context: MoveContext, plan: MovePlan, progress: MoveProgress) -> None:
        self.plan, self.progress = plan, progress
        self._clocked = progress.hold_stamp_ms is not None
        self.now_ms = context.now_ms()
        tables = RoutingTables.read(context, ClientsHistory.read_all)
        self.now: InForce = InForce.of(plan, progress, Whereabouts(tables.tables))
        stamps = tables.target.stamps("go", progress) if self._clocked else None
        self.gone_ms: int | None = stamps and stamps[0]
        """Time of go by that clock; None if unknown."""
        self._on_target = self._of_attempt(tables.said_on_target, plan.request.target)
        self._on_source = self._of_attempt(tables.said_on_source, plan.request.source)

    @property
    def watches_source(self) -> bool:
        """True while records and readers there count; of an abandoned one when it returns."""
        return not (self.plan.request.is_unplanned or self.progress.residue_over)

    def _of_attempt(self, history: ClientsHistory, cluster: str) -> Mapping[str, list[StampedAck]]:
        found = defaultdict[str, list[StampedAck]](list)
        for one in history.messages():
            if (one.ack.generation, one.ack.cluster) == (self.progress.attempt, cluster):
                found[one.ack.subject].append(one)
        return found

    def ours(self, groups: Iterable[str]) -> tuple[str, ...]:
        """Return the groups whose members no later move holds or has redirected."""
        return tuple(group for group in groups if self.now.leads(group_subject(group)))

    def of(self, group: str) -> tuple[GroupResume, bool]:
        """Return what the members of a group acknowledged of this move's go, and if any did.

        ``started`` has the lowest offset at which a member started each partition.
        """
        subject = group_subject(group)
        said = [one.ack for one in self._on_source.get(subject, ())]
        left = {ack.identity: ack.uncommitted for ack in said if ack.state == "held"}
        arrived = [one for one in self._on_target.get(subject, ()) if one.ack.state != "held"]
        started: dict[str, int] = {}
        for ack in (one.ack for one in arrived):
            left.setdefault(ack.identity, ack.uncommitted)
            for name, offset in ack.positions.items():
                # A second member starts where the first has left.
                started[name] = min(offset, started.get(name, offset))
        found = GroupResume(
            resumed_ms=self._first(arrived, "resumed"),
            processed_ms=self._first(arrived, "processed"),
            started=started,
            uncommitted={one: lost for one, lost in left.items() if any(lost.values())},
        )
        return found, bool(arrived)

    def followers(self) -> tuple[Follower, ...]:
        target, source = (
            [one for subject in self.plan.subjects for one in said.get(subject, ())]
            for said in (self._on_target, self._on_source)
        )
        return followers_of(target, source, self.progress.hold_stamp_ms)

    def unwritten(self) -> list[StampedAck]:
        """Return the newest words of producers on the target that have not written there yet."""
        topics = (topic_subject(topic) for topic in self.plan.topics)
        said = (self._on_target.get(each, ()) for each in topics if self.now.leads(each))
        newest = {one.ack.key(): one for one in chain.from_iterable(said)}
        return [one for one in newest.values() if one.ack.unwritten]

    def _first(self, arrived: Iterable[StampedAck], state: AckState) -> int | None:
        return earliest(*(one.at_ms(state) for one in arrived if self._clocked))


class TargetRecords:
    """Records between ``offsets`` of the target's topics; maps are loaded on first use."""

    def __init__(
        self, context: MoveContext, plan: MovePlan, offsets: Iterable[Mapping[str, int]]
    ) -> None:
        self._context = context
        self._offsets: dict[TopicPartition, set[int]] = defaultdict(set)
        for each in offsets:
            for name, offset in each.items():
                self._offsets[TopicPartition.parse(name)].add(offset)
        places = [row for group in plan.groups for row in group.positions]
        read = {p.topic if p.direction == "forward" else p.target_topic for p in places}
        pairs = topic_pairs(context, {*plan.topics, *read})
        self._pairs: dict[str, TopicPair] = {pair.target_topic: pair for pair in pairs}
        self._maps: dict[Direction, Maps] = {}

    def _maps_of(self, direction: Direction) -> Maps:
        if direction in self._maps:
            return self._maps[direction]
        wanted = WantedMaps()
        for place, offsets in self._offsets.items():
            pair = self._pairs.get(place.topic)
            if pair is not None and (pair.is_shared or pair.direction == direction):
                upstream = TopicPartition(pair.topic, place.partition)
                wanted.add(direction, (upstream, {}), (place, self._ends), (), offsets)
        try:
            found = wanted.load(self._context.forward)
        except UnavailableError as error:
            if direction == "forward":
                raise
            # The reverse maps are on the source: every offset counts.
            log.log(loudness(error), "records are counted by their offsets: %s", error)
            found = {"reverse": FlowMaps({})}
        self._maps[direction] = found
        return found

    @cached_property
    def _ends(self) -> Mapping[TopicPartition, int]:
        return self._context.target.log_ends(list(self._offsets)) if self._offsets else {}

    def count(self, name: str, start: int, end: int | None = None) -> int:
        """Count records of a partition, by default up to the end of its log."""
        place = TopicPartition.parse(name)
        pair = self._pairs.get(place.topic)
        end = self._ends.get(place, start) if end is None else end
        if pair is None or start >= end:
            return 0
        needed = get_args(Direction) if pair.is_shared else (pair.direction,)
        maps = {one: self._maps_of(one)[one] for one in needed}
        source, alias = TopicPartition(pair.topic, place.partition), self._context.target.alias
        found = partition_facts(
            *(maps, pair.direction, (source, {}), (place, {}), alias), is_shared=pair.is_shared
        )
        return found.records_downstream(start, end)
