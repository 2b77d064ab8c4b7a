"""The mechanisms of docs/data-plane.md and of moves, each with a mutant and what kills that.

A mutant replaces functions by name. Its killer is the simulation, with the faults that the
mechanism is there for, or a test where a simulated world cannot show the damage.
"""

from __future__ import annotations

import importlib
import itertools
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from srm.clock import now_s
from srm.domain.groups.translation import Translation
from srm.domain.moves import gate
from srm.domain.moves.routing import Route
from srm.domain.moves.whereabouts import Whereabouts
from srm.domain.offset_map.map_records import BlockKey
from srm.domain.offset_map.offset_map import Position
from srm.domain.text.amount import Reason
from srm.replication.claim import Claim, transactional_id
from srm.replication.partition import Phase

Replacement = Callable[[Any], Any]
"""Takes what stands there and returns what is to stand there."""


@dataclass(frozen=True)
class Mutant:
    """``changes`` are ("module:name.name", replacement); ``killer`` is a test id, if not seeds."""

    name: str
    mechanism: str
    changes: tuple[tuple[str, Replacement], ...]
    faults: str = "ordinary"
    killer: str = ""

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Let the mutant live."""
        undo = []
        try:
            for where, replacement in self.changes:
                owner, name = _find(where)
                before = vars(owner)[name]
                undo.append((owner, name, before))
                setattr(owner, name, replacement(before))
            yield
        finally:
            for owner, name, before in reversed(undo):
                setattr(owner, name, before)


def _find(where: str) -> tuple[Any, str]:
    module, _, path = where.partition(":")
    owner: Any = importlib.import_module(module)
    *outer, name = path.split(".")
    for part in outer:
        owner = getattr(owner, part)
    return owner, name


def _without_epoch(fetch_from: Any) -> Any:
    return lambda *args: replace(fetch_from(*args), epoch=-1)


def _without_leader_epoch(query: Any) -> Any:
    return lambda partition, _, value: query(partition, -1, value)


def _always(value: Any) -> Replacement:
    return lambda _: lambda *args, **kwargs: value


def _without_late_ones(fence: Any) -> Any:
    return lambda *of, sets=True: fence(*of) if sets else None


def _as_reasons(problems: Any) -> Any:
    return lambda facts: (Reason(str(getattr(one, "text", one))) for one in problems(facts))


def _without_starts(place: Any) -> Any:
    def after_loss(group: Any) -> Any:
        is_known = group.last is not None or group.target_committed is not None
        return place(group) if is_known else Translation("no-commit")

    return after_loss


def _by_newest(_: Any) -> Any:
    """Let a route that leads clients of another home outrank what living clients announce."""

    def of(where: Whereabouts, subject: str, home: str) -> tuple[Route, ...]:
        led, present = where._routes(home).of(subject), where.present.followers(subject)
        routes = [one for table in where.tables if subject in table for one in table[subject].each]
        newest = max((one.generation for one in routes), default=0)
        later = [ack for ack in present if ack.home == home and ack.generation > newest]
        said = tuple(Route(ack.generation, ack.cluster, "go", "unknown") for ack in later)
        return said or (led,)

    return of


def _as_if_in_force(bring_about: Any) -> Any:
    return lambda context, plan, make: bring_about(
        context, plan, lambda now: make(replace(now, later={}))
    )


def _property(value: Any) -> Replacement:
    return lambda _: property(lambda self: value)


def _claim_at_once(_: Any) -> Any:
    async def until_in_force(target: Any, end: int, claim: Claim) -> Claim:
        del target, end
        return claim

    return until_in_force


def _async(value: Any) -> Replacement:
    async def answer(*args: Any, **kwargs: Any) -> Any:
        del args, kwargs
        return value

    return lambda _: answer


def _own_name(_: Any) -> Any:
    names = itertools.count()
    return lambda flow, target: f"{flow}-{target}-{next(names)}"


def _to_the_end(resume: Any) -> Any:
    """The walk takes the end of the log for the end of what older owners write."""

    async def walk(
        source: Any, target: Any, start: Any, claim: Any, *rest: Any, **settings: Any
    ) -> Any:
        if claim is not None:
            start = replace(start, producer_ids=start.producer_ids | {claim.producer.id})
        found = await resume(source, target, start, None, *rest, **settings)
        return replace(found, target_next=max(found.target_next, start.target_next))

    return walk


def _no_walk(resume: Any) -> Any:
    async def known(source: Any, target: Any, start: Any, *rest: Any, **settings: Any) -> Any:
        found = await resume(source, target, start, *rest, **settings)
        return replace(found, source_next=start.source_next, runs=(), notes=())

    return known


def _without_marker(_: Any) -> Any:
    async def take(wire: Any, flow: Any, target: Any, lifetime_s: float, **_: Any) -> Claim:
        producer = await wire.init_producer_id(transactional_id(flow, target))
        return Claim(producer, now_s() + lifetime_s)

    return take


def _while_it_copies(_: Any) -> Any:
    return property(lambda self: self.phase is Phase.COPYING and self.queue.has_waiting)


def _positions_first(write: Any) -> Any:
    """The map is written when the report after it is due, and nothing of it is late."""

    def write_late(self: Any, send: Any) -> Any:
        late, self.late_write = getattr(self, "late_write", None), lambda: write(self, send)
        if late is not None:
            late()
        self.late = frozenset()
        return self.late

    return write_late


def _takes_any_offset(acknowledged: Any) -> Any:
    def take(self: Any, outgoing: Any, base_offset: int, *rest: Any) -> bool:
        self.target_next = base_offset
        return bool(acknowledged(self, outgoing, base_offset, *rest))

    return take


def _same_attempt(change: Any) -> Any:
    def keep(self: Any, *args: Any, **kwargs: Any) -> Any:
        attempt = self.attempt
        found = change(self, *args, **kwargs)
        self.attempt = attempt
        return found

    return keep


def _open(block: Any) -> Any:
    def always_open(self: Any, *, open_end: bool) -> Any:
        del open_end
        return block(self, open_end=True)

    return always_open


def _whole(held_log: Any) -> Any:
    async def held(target: Any, start: Any, **options: Any) -> Any:
        return replace(await held_log(target, start, **options), end=start.target_next)

    return held


def _reraised(_: Any) -> Any:
    async def guard(self: Any, copy: Any, attempt: int, work: Awaitable[Any]) -> None:
        verdict = await work
        if verdict is not None and copy.attempt == attempt:
            self._carry_out(copy, verdict)

    return guard


def _no_owner(_: Any) -> Any:
    return property(
        lambda self: BlockKey(self.topic_id, self.partition, self.runs[0].target_start, (-1, -1))
    )


def _unpaused(_: Any) -> Any:
    def new_topics(term: Any, found: Any) -> Any:
        return term.cleaning.new_topics(found)

    return new_topics


def _without_error(fetch: Any) -> Any:
    return fetch._replace(decode=lambda body: replace(fetch.decode(body), error=0))


def _over_everything(_: Any) -> Any:
    def after_discarded(facts: Any, offset: int) -> int:
        return max([offset, *(end for _, end in facts.losses.discarded)])

    return after_discarded


def _unchecked(_: Any) -> Any:
    def position(mine: Any, sealed: Any, copy: Any) -> Position:
        del copy
        at = mine.position or Position(0, 0, 0)
        return Position(at.target_next, sealed.marker + 1, at.target_next)

    return position


RESTORE: Final = "srm.replication.restore"
PROVING: Final = "tests/unit/engine/groups/test_proving.py"
DRILL: Final = "tests/unit/engine/drill/test_drill.py"
RESTORED: Final = "tests/unit/replication/restore/test_steps.py"
FENCING: Final = "tests/unit/engine/moves/test_fencing.py"
UNPLANNED: Final = "tests/unit/engine/moves/control/test_unplanned_groups.py"
SETTLED: Final = "tests/unit/engine/recovery/test_settle.py"
MUTANTS: Final[Sequence[Mutant]] = (
    Mutant(
        "a claim of one's own",
        "all owners claim a partition under one transactional id",
        (("srm.replication.claim:transactional_id", _own_name),),
        faults="stop slot,two workers,cut off",
    ),
    Mutant(
        "no marker",
        "a claim is in force once its marker is in the log",
        (
            ("srm.replication.copy.claiming:take", _without_marker),
            ("srm.replication.copy.claiming:until_in_force", _claim_at_once),
            ("srm.replication.copy.claiming:resume", _to_the_end),
        ),
        faults="stop slot,two workers",
    ),
    Mutant(
        "the marker is not read back",
        "behind the marker of a claim nothing of an older owner comes: it is waited for, the walk "
        "ends at it, and what it meets later is seen by an offset that was not expected",
        (
            ("srm.replication.copy.claiming:until_in_force", _claim_at_once),
            ("srm.replication.copy.claiming:resume", _to_the_end),
            ("srm.replication.partition:PartitionCopy.on_ack", _takes_any_offset),
        ),
        faults="two workers,cut connections,stop slot",
    ),
    Mutant(
        "the second batch follows at once",
        "the second batch of a log without a marker waits until the first one was read back",
        (("srm.replication.partition:PartitionCopy.can_send", _while_it_copies),),
        killer="tests/unit/replication/copy/test_first_claims.py",
    ),
    Mutant(
        "a claim for ever",
        "a claim is used for a quarter of the time that brokers remember producers",
        (("srm.replication.claim:Claim.holds", _always(True)),),
        faults="sleep long",
    ),
    Mutant(
        "no walk",
        "resume finds what the map does not know",
        (("srm.replication.copy.claiming:resume", _no_walk),),
        faults="kill slot",
    ),
    Mutant(
        "records of others in the target do not matter",
        "a target that others have filled is not filled a second time",
        (("srm.replication.copy.claiming:records_of_others", _async(None)),),
        faults="filled",
    ),
    Mutant(
        "one sequence number",
        "sequence numbers keep the order of batches in flight",
        (
            (
                "srm.replication.partition:next_sequence",
                lambda _: lambda sequence, count: sequence,
            ),
        ),
    ),
    Mutant(
        "any base offset will do",
        "an acknowledged batch stands where it was expected",
        (("srm.replication.partition:PartitionCopy.on_ack", _takes_any_offset),),
        faults="truncate target,foreign record,cut connections",
    ),
    Mutant(
        "answers of former attempts count",
        "an answer to a claim that was given up says nothing",
        (
            ("srm.replication.partition:PartitionCopy.begin_claiming", _same_attempt),
            ("srm.replication.partition:PartitionCopy.rest", _same_attempt),
        ),
        killer="tests/unit/replication/copy/test_claiming.py",
    ),
    Mutant(
        "position before its blocks",
        "a position is written after the blocks that it rests on",
        (("srm.replication.mapping.map_writer:MapLog.write", _positions_first),),
        killer="tests/unit/replication/report/test_reporting.py",
    ),
    Mutant(
        "a run is always open",
        "the block says whether its last run may still grow",
        (("srm.replication.mapping.map_writer:MapWriter._block", _open),),
        killer="tests/unit/replication/mapping/test_map_writer.py",
    ),
    Mutant(
        "blocks without their owner",
        "an owner that wakes up late overwrites no block of its successor",
        (("srm.domain.offset_map.map_records:MapBlock.block_key", _no_owner),),
        killer="tests/unit/replication/mapping/test_map_writer.py",
    ),
    Mutant(
        "no found run",
        "a new owner writes down what only its predecessor's report told",
        (("srm.replication.mapping.starts:_beyond", _always(None)),),
        faults="kill slot",
    ),
    Mutant(
        "a hole in the map",
        "a position counts only where its map is whole: what is missing is walked again",
        (("srm.replication.mapping.starts:_rests_on_map", _always(True)),),
        faults="lose map,lose last block",
    ),
    Mutant(
        "leader epochs of the source say nothing",
        "a source that was truncated is noticed though it has grown again",
        (
            ("srm.replication.copy.fetching:FetchFrom", _without_epoch),
            ("srm.replication.copy.claiming:Claiming._is_source_whole", _async(True)),
        ),
        faults="truncate source",
    ),
    Mutant(
        "any leader answers for a log",
        "a leader that lags behind the controller is not believed",
        (("srm.kafka.wire.requests:LogQuery", _without_leader_epoch),),
        killer="tests/unit/kafka/wire/test_leaders.py",
    ),
    Mutant(
        "any broker says who leads",
        "metadata that names an older leader is ignored for a while",
        (("srm.kafka.wire.cluster:_KnownTopic.is_newer_than", _always(False)),),
        killer="tests/unit/kafka/wire/test_leaders.py",
    ),
    Mutant(
        "an epoch is the same whatever it begins with",
        "a restored cluster that uses its leader epochs again is noticed",
        (("srm.replication.log_reader:LogReader._begins_like", _async(True)),),
        faults="restore source",
    ),
    Mutant(
        "the target is never short",
        "before a claim the target's end and epochs are compared with the position",
        (
            ("srm.replication.copy.claiming:held_log", _whole),
            ("srm.replication.copy.lifecycle:Lifecycle._has_end_moved", _async(False)),
        ),
        faults="truncate target",
    ),
    Mutant(
        "an owner that was killed has left no marker",
        "a cut may be before the log start by as many markers as claims were not reported",
        (("srm.replication.claim:Claim.claims_since", _always(0)),),
        killer="tests/unit/replication/copy/test_claiming.py",
    ),
    Mutant(
        "any place will do",
        "a record of the source is passed with evidence only",
        (("srm.replication.resume.evidence:LogReading.allows", _always(True)),),
        killer="tests/unit/replication/resume/test_walk_evidence.py",
    ),
    Mutant(
        "what is not found was compacted",
        "a copy whose record is gone needs evidence",
        (
            ("srm.replication.resume.evidence:Steps._is_compacted", _async(True)),
            ("srm.replication.resume.walk:SourceWalk._is_possible", _always(True)),
        ),
        faults="truncate source,compact source",
    ),
    Mutant(
        "an assignment of before the claim will do",
        "around a claim the assignment is read to where its log ends at that moment",
        (("srm.replication.copy.slot:Slot._read_assignment", _async(None)),),
        killer="tests/unit/replication/copy/test_read_assignment.py",
    ),
    Mutant(
        "positions before notes",
        "no position passes a loss that was not told",
        (("srm.replication.report:Reporter._write_first", _always(None)),),
        killer="tests/unit/replication/report/test_reporting.py",
    ),
    Mutant(
        "a cut is told under the old claim",
        "that a log was cut is told under a claim of its own",
        (("srm.replication.partition:PartitionCopy.needs_claim", _property(False)),),
        killer="tests/unit/replication/mapping/test_map_cut.py",
    ),
    Mutant(
        "one bad partition ends the slot",
        "whatever is wrong with one partition stops that one only",
        (("srm.replication.copy.lifecycle:Lifecycle._guard", _reraised),),
        faults="contradict,truncate source,elect",
    ),
    Mutant(
        "what the source lost is undecidable whatever was decided",
        "a decision about lost records holds for copies behind the last report, too",
        (("srm.replication.partition:PartitionCopy.accepts_loss", _property(False)),),
        killer="tests/unit/replication/copy/test_claiming.py",
    ),
    Mutant(
        "a decision does not cover retention",
        "what retention takes of a range that is left out stops nothing",
        (("srm.replication.batches.to_send:TargetLimits.leaves_out", _always(False)),),
        killer="tests/unit/replication/copy/test_claiming.py",
    ),
    Mutant(
        "a paused driver takes note of what it sees",
        "a topic that was rebuilt is told from the one that was copied",
        (("srm.replication.driver.assignment:Term.new_topics", _unpaused),),
        killer="tests/unit/replication/driver/test_pausing.py",
    ),
    Mutant(
        "what was discarded is skipped at once",
        "groups skip a residue only when what was copied before it is known",
        (("srm.domain.groups.translation:_after_discarded", _over_everything),),
        killer="tests/unit/domain/groups/test_translation.py",
    ),
    Mutant(
        "a restore never ends",
        "who copied back can write no more when the flow goes on",
        ((f"{RESTORE}.steps:_end", _always(None)),),
        killer=RESTORED,
    ),
    Mutant(
        "records of others do not matter",
        "an original with records between ours is not handed over",
        ((f"{RESTORE}.topic_handover:_check_foreign", _always(None)),),
        killer=RESTORED,
    ),
    Mutant(
        "whoever claims meanwhile does not matter",
        "a restore that was stopped leaves the work of a later owner alone",
        ((f"{RESTORE}.topic_handover:_check_seals", _always(None)),),
        killer=RESTORED,
    ),
    Mutant(
        "half a copy will do",
        "a copy is handed over when all of it is restored",
        ((f"{RESTORE}.topic_handover:_position", _unchecked),),
        killer=RESTORED,
    ),
    Mutant(
        "every source is a new one",
        "a source that has come back with its data is not restored",
        ((f"{RESTORE}.steps:_is_former", _always(False)),),
        killer=RESTORED,
    ),
    Mutant(
        "old checkpoints stay",
        "no offset of the old log is taken for one of the new",
        ((f"{RESTORE}.steps:renew_checkpoints", _always(0)),),
        killer=RESTORED,
    ),
    Mutant(
        "records are not compared",
        "a translation is proven by the records on both sides",
        (("srm.domain.groups.proof:differences", _always(())),),
        killer=PROVING,
    ),
    Mutant(
        "what is wrong is emitted all the same",
        "a checkpoint that the records contradict is not emitted",
        (("srm.engine.groups.proving:_look_again", _always({})),),
        killer=PROVING,
    ),
    Mutant(
        "a move starts on a wrong map",
        "a move does not start where a translation is disproved",
        (("srm.engine.moves.planning:proof_problems", _always(())),),
        killer=PROVING,
    ),
    Mutant(
        "clients go to a cluster whose return is not settled",
        "a move to a cluster is blocked while the flow from it is paused for a disaster",
        (("srm.engine.moves.planning:unsettled_problems", _always(())),),
        killer="tests/unit/engine/moves/test_unsettled.py",
    ),
    Mutant(
        "an announcement is judged by the newest route of its subject",
        "where clients work is judged by the route that leads their own home",
        (("srm.domain.moves.whereabouts:Whereabouts.of", _by_newest),),
        killer="tests/simulation/test_chains.py",
    ),
    Mutant(
        "lost routes of decided moves stay lost",
        "routes of decided moves that a cluster has lost are written again",
        (("srm.engine.moves.registers:lost_routes", _always({})),),
        killer="tests/unit/engine/moves/control/test_losses.py",
    ),
    Mutant(
        "a decision covers what clients write under a route",
        "records written under a route to the source are not residue",
        (("srm.engine.recovery:ReturnedFlow._routed_by", _always({})),),
        killer=SETTLED,
    ),
    Mutant(
        "an outcome is one record",
        "an outcome of any size is written in parts that a broker takes",
        (("srm.domain.text.documents:_LARGEST", lambda _: sys.maxsize),),
        killer=SETTLED,
    ),
    Mutant(
        "one group blocks all",
        "in an unplanned move nothing about one group blocks the others",
        (("srm.engine.moves.planning:group_problems", _as_reasons),),
        killer=UNPLANNED,
    ),
    Mutant(
        "empty topics are left to the reset policy",
        "a group starts at the first record of topics that were empty on the target",
        (("srm.domain.moves.plan:_after_loss", _without_starts),),
        killer=UNPLANNED,
    ),
    Mutant(
        "a former topic of the same name counts",
        "a place in a deleted topic is not one in the next topic of its name",
        (("srm.domain.groups.mm2_records:Checkpoint.at_the_start", lambda _: lambda it: it),),
        killer="tests/unit/engine/moves/test_former_lives.py",
    ),
    Mutant(
        "members alone read",
        "a commit on the source without members is a reader",
        (("srm.engine.moves.gate:_readers", _always(())),),
        killer="tests/unit/engine/moves/test_stragglers.py",
    ),
    Mutant(
        "a group moves without its place",
        "a group whose offsets are gone since the plan is left out",
        (("srm.engine.moves.gate:lost_groups", _always({})),),
        killer="tests/unit/engine/moves/control/test_groups_without_commits.py",
    ),
    Mutant(
        "what is left out stays held",
        "clients of a group that an attempt leaves out are released",
        (("srm.engine.moves.steps:leave_out", _always(None)),),
        killer="tests/unit/engine/moves/control/test_groups_without_commits.py",
    ),
    Mutant(
        "a named group takes all topics along",
        "a move of named groups leaves the topics that they do not read",
        (("srm.engine.moves.reading:_read_by_groups", _always({"Payments", "PaymentsOther"})),),
        killer="tests/unit/engine/moves/planning/test_named_groups.py",
    ),
    Mutant(
        "excluded groups move",
        "a move without named groups leaves the excluded ones",
        (("srm.engine.moves.reading:_selection", _always(lambda _: True)),),
        killer="tests/unit/engine/moves/planning/test_named_groups.py",
    ),
    Mutant(
        "a target admits everything",
        "a plan names what the brokers of the target refuse",
        (("srm.engine.moves.surroundings:target_limits", _always(())),),
        killer="tests/unit/engine/moves/planning/test_surroundings.py",
    ),
    Mutant(
        "a superseded step is called",
        "redirectors are called with the step of the move that their clients follow",
        (("srm.engine.moves.effects:bring_about", _as_if_in_force),),
        killer="tests/unit/engine/moves/steps/test_redirector_calls.py",
    ),
    Mutant(
        "a superseded move is planned again",
        "a plan under the id of a superseded move is an error",
        (("srm.engine.moves.planning:require_in_force", _always(None)),),
        killer="tests/unit/engine/moves/test_superseded.py",
    ),
    Mutant(
        "a slot obeys any application",
        "a slot ends once another application drives its flow",
        (("srm.replication.copy.slot:Slot._check_driver", _async(None)),),
        killer="tests/unit/replication/copy/test_read_assignment.py",
    ),
    Mutant(
        "a fetch that was refused as a whole was empty",
        "an error of a whole fetch is trouble of all asked partitions, with a pause",
        (("srm.kafka.wire.frames:FETCH", _without_error),),
        killer="tests/unit/kafka/wire/test_wire_fetches.py",
    ),
    Mutant(
        "a throttled broker is a dead one",
        "throttle time counts when the answers of a connection are awaited",
        (("srm.kafka.wire.connection:Connection._note_pause", _always(None)),),
        killer="tests/unit/kafka/wire/test_wire_deadlines.py",
    ),
    Mutant(
        "as much is under way under any quota",
        "a producer quota bounds what is under way, and nothing is sent in its pauses",
        (("srm.replication.copy.sending:TargetLink._heed_quota", _always(None)),),
        killer="tests/unit/replication/copy/test_copying.py",
    ),
    Mutant(
        "a late decision is silent",
        "a report says that a decision was seen after the leases of its hold",
        (("srm.engine.moves.verification:LEASE_MS", lambda _: sys.maxsize),),
        killer=FENCING,
    ),
    Mutant(
        "one replica of the coordinator's log will do",
        "a plan warns where a frozen coordinator cannot be replaced",
        (("srm.engine.moves.surroundings:_transaction_logs", _always(())),),
        killer=FENCING,
    ),
    Mutant(
        "a process pauses as long as it likes",
        "go commits only while more of the lease is left than its transaction can take",
        (("srm.engine.moves.holding:Lease.rest_s", _always(float("inf"))),),
        killer=FENCING,
    ),
    Mutant(
        "a move decides though its pause is being settled",
        "of a go and a settlement only one succeeds",
        (("srm.engine.moves.holding:renew_pause", _always(None)),),
        killer="tests/unit/engine/moves/test_unplanned_together.py",
    ),
    Mutant(
        "a hold never ends",
        "a late step of an attempt whose hold is over changes nothing",
        (("srm.domain.moves.progress:MoveProgress.end_of_hold", _always("")),),
        killer=FENCING,
    ),
    Mutant(
        "an approval covers any loss",
        "an unplanned move holds only up to the loss that its approval accepts",
        (("srm.engine.moves.holding:beyond_approval", _always("")),),
        killer="tests/unit/engine/moves/control/test_accepted_loss.py",
    ),
    Mutant(
        "a late hold pauses for good",
        "a hold of a move that was decided and settled ends its pause",
        (("srm.engine.moves.holding:_leave_if_late", _always(None)),),
        killer="tests/unit/engine/moves/test_unplanned_together.py",
    ),
    Mutant(
        "a gate needs a slot for markers",
        "only records between the map's end and a commit are waited for",
        (("srm.engine.moves.reading:past_markers", lambda _: lambda maps, *_: maps),),
        killer="tests/unit/engine/moves/test_idle_copies.py",
    ),
    Mutant(
        "a client is its client id",
        "each start of a client announces itself, and a gate waits for each",
        (
            (
                "srm.domain.moves.announcements:Ack.identity",
                lambda _: property(lambda ack: ack.client),
            ),
        ),
        killer="tests/unit/engine/moves/control/test_presence.py",
    ),
    Mutant(
        "a member is its name",
        "a member whose client says its member id is known by that alone",
        (
            (
                "srm.domain.moves.gate:is_member",
                lambda _: lambda ack, _id, name: gate.is_member_of(ack.client, name),
            ),
        ),
        killer="tests/unit/domain/moves/gate/test_presence.py",
    ),
    Mutant(
        "all members are of an earlier session",
        "a hold removes members by ids that living clients of the source had",
        (
            (
                "srm.engine.moves.facts:MoveFacts.remnants",
                lambda _: lambda facts, group: facts.target.group(group).ids,
            ),
        ),
        killer="tests/unit/engine/moves/control/test_unplanned_groups.py",
    ),
    Mutant(
        "late rules stay",
        "a superseded move that is run again lifts its fences",
        tuple(
            (f"srm.engine.moves.{room}:fence_if_possible", _without_late_ones)
            for room in ("effects", "verification")
        ),
        killer="tests/unit/engine/moves/control/test_fence.py",
    ),
    Mutant(
        "what was decided counts whatever the log holds",
        "a decision about a range ends where the source's log has other records",
        (("srm.replication.log_reader:LogReader.held_to", _async(sys.maxsize)),),
        killer="tests/unit/replication/copy/test_claiming.py",
    ),
    Mutant(
        "a killed drill leaves its groups",
        "the next drill or emission removes what a drill has left",
        (("srm.engine.emission:remove_leftovers", _always(None)),),
        killer=DRILL,
    ),
    Mutant(
        "what the member reads does not matter",
        "a drill compares what a member of the shadow group reads",
        (("srm.engine.drill:_Comparison.problem", _always("")),),
        killer=DRILL,
    ),
    Mutant(
        "a move never ends",
        "a move whose residue is over keeps its report and its line alone",
        (("srm.domain.moves.line:MoveLine.end", lambda _: lambda self: self),),
        killer="tests/unit/engine/moves/test_past_moves.py",
    ),
    Mutant(
        "no turns",
        "a step that was fenced opens the writer in its turn",
        (("srm.engine.control.control_topics:Place.wait", _always(None)),),
        killer="tests/unit/engine/control/test_queue.py",
    ),
)
