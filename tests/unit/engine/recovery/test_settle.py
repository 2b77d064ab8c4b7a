"""A return is settled in one step, or the flow stays paused as it was."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest
from tests.slot_reports import records_of

from srm.domain.flow_state.replication_records import (
    COMMANDS,
    PAUSE_KEY,
    REPORTS,
    AssignedPartition,
    PartitionNotes,
    PartitionPosition,
    PartitionStatus,
    Pause,
    SlotReport,
    read_pause,
)
from srm.domain.flow_state.replication_state import CopiedTopic
from srm.domain.groups.group_sync import LedgerEntry
from srm.domain.moves.disaster import GroupOutcome, Outcome, PartitionOutcome
from srm.domain.moves.plan import MovePlan
from srm.domain.moves.progress import MoveProgress
from srm.domain.moves.request import MoveRequest
from srm.domain.moves.routing import ERA, Route, topic_subject
from srm.domain.names import internal_topics
from srm.domain.names.topics import TopicPartition
from srm.domain.offset_map.offset_map import Position
from srm.domain.recovery.restore import RESTORE_KEY, RestoreRecord, restore_flow
from srm.domain.recovery.source_return import CopyEnd, Shape, Wanted
from srm.engine.cluster_ports import Cluster
from srm.engine.control.control_topics import ensure_compacted
from srm.engine.flows.supervision import pause_in_force
from srm.engine.moves.history import RoutingHistory
from srm.engine.moves.tables import MoveRecords
from srm.engine.ports import FlowContext
from srm.engine.recovery import (
    ReturnedFlow,
    _partition,
    read_residue,
    store_outcome,
)
from srm.errors import (
    AuthorizationError,
    ConflictError,
    GateClosedError,
    NotFoundError,
    SrmError,
    UnavailableError,
)
from srm.replication.ports import DecodedRecord

PAYMENTS = TopicPartition("Payments", 0)
COPY = TopicPartition("P.Payments", 0)
STATE = internal_topics.replication("P")
PAUSE = Pause("r1", "ann", "P is gone", 96, "m1")


class KilledError(Exception):
    """The process was killed."""


@dataclass
class Switch:
    """Pauses by the same records as the real one; killed at an act if the test says so."""

    context: FlowContext
    killed_at: str = ""
    acts: list[str] = field(default_factory=list)
    unsealed: dict[TopicPartition, str] = field(default_factory=dict)

    def _act(self, name: str) -> None:
        self.acts.append(name)
        if name == self.killed_at:
            raise KilledError

    def pause(self, wanted: Pause) -> None:
        self.context.target.compacted_topic(STATE, COMMANDS).write({PAUSE_KEY: wanted.value()})

    def seal(self, copies: Collection[TopicPartition]) -> dict[TopicPartition, str]:
        self._act("seal")
        assert COPY in copies
        return self.unsealed

    def resume(self, decided: Mapping[bytes, bytes] = {}, request: str | None = None) -> bool:
        self._act("resume")
        standing = pause_in_force(self.context)
        if standing is None:
            return False
        if standing.request != request:
            raise ConflictError("paused again meanwhile")
        self.context.target.compacted_topic(STATE, COMMANDS).write({**decided, PAUSE_KEY: None})
        self._act("resumed")
        return True

    def leave(self, move_id: str) -> None:
        raise AssertionError(move_id)


@dataclass
class Logs:
    """Says where copies end; each offset of a source holds a record of that millisecond."""

    ends: dict[TopicPartition, CopyEnd | SrmError]
    walked: list[AssignedPartition] = field(default_factory=list)

    def copy_ends(
        self, partitions: Sequence[AssignedPartition], show: Callable[[int], None]
    ) -> dict[AssignedPartition, CopyEnd | SrmError]:
        self.walked += partitions
        show(len(partitions))
        return {p: self.ends[TopicPartition(p.topic, p.partition)] for p in partitions}

    def read(
        self,
        wanted: Sequence[Wanted],
        visit: Callable[[int, Sequence[DecodedRecord]], bool],
        at_once: int,
    ) -> None:
        del at_once
        for index, (_, one) in enumerate(wanted):
            for at in range(one.start, one.end):
                record = DecodedRecord(at, at, None, b"%d" % at, [])
                if not visit(index, [record]):
                    break


@dataclass
class Returned:
    """P has 100 payments, 80 of which were copied; the flow is paused."""

    context: FlowContext
    switch: Switch
    logs: Logs

    def settle(self, **choices: str) -> object:
        return ReturnedFlow(self.context, self.logs).settle(choices, None, "ann")  # type: ignore[arg-type]

    @property
    def commands(self) -> dict[bytes, bytes]:
        return self.context.target.compacted_topic(STATE, COMMANDS).read()

    @property
    def notes(self) -> list[PartitionNotes]:
        return [PartitionNotes.decode(v) for k, v in self.commands.items() if k[:6] == b"notes:"]

    @property
    def outcome(self) -> Outcome | None:
        stored = (
            self.context.target.compacted_topic(internal_topics.MOVES).read().get(b"outcome:m1")
        )
        return Outcome.decode(stored) if stored else None


@pytest.fixture
def returned(sites) -> Returned:
    context = sites.flow("P->B")
    ensure_compacted(context.target, STATE, 2)
    ids = {
        name: c.topics()[name].topic_id
        for c, name in ((context.source, "Payments"), (context.target, "P.Payments"))
    }
    copied = CopiedTopic(
        *("Payments", ids["Payments"], "P.Payments", ids["P.Payments"]),
        *(context.source.cluster_id(), context.target.cluster_id()),
    )
    status = PartitionStatus("Payments", 0, "copying")
    context.target.compacted_topic(STATE, COMMANDS).write({copied.key(): copied.value()})
    context.target.compacted_topic(STATE, REPORTS).write({status.key(): status.value()})
    switch = Switch(context)
    context = replace(context, switch=switch)
    switch.pause(PAUSE)
    return Returned(context, switch, Logs({PAYMENTS: CopyEnd(80, 81, 0, 100, 100)}))


def test_what_only_the_source_has_is_found_with_its_times_and_who_had_read_of_it(
    returned: Returned, sites
) -> None:
    sites.commit("P", "audit", "Payments", 93)
    sites.commit("P", "slow", "Payments", 40)
    sites.commit("P", "synced", "Payments", 95)
    topic_id = returned.context.source.topics()["Payments"].topic_id
    ours = LedgerEntry("synced", PAYMENTS, topic_id, None, 95, "B", "sync", settled=True)
    ensure_compacted(returned.context.source, internal_topics.LEDGER)
    returned.context.source.compacted_topic(internal_topics.LEDGER).write(
        {ours.key(): ours.value()}
    )

    found = ReturnedFlow(returned.context, returned.logs).inspect()

    [entry] = found.partitions
    assert (found.shape, entry.residue, entry.records) == ("same", (80, 100), 20)
    assert (entry.first_ms, entry.last_ms) == (80, 99)
    assert {name: dict(group.already_read) for name, group in found.groups.items()} == {
        "audit": {"Payments-0": 13}
    }
    assert found.pause == PAUSE


def test_a_choice_is_carried_out_with_the_end_of_the_pause_and_the_outcome_is_kept(
    returned: Returned,
) -> None:
    returned.logs.ends[PAYMENTS] = CopyEnd(80, 81, 0, 100, 100, epoch=5)
    returned.settle(Payments="keep")

    [note] = returned.notes
    assert (note.decision, note.left_out, note.epoch) == ("keep", (80, 100), 5)
    assert read_pause(returned.commands) is None
    assert returned.outcome is not None
    assert (returned.outcome.records, returned.outcome.choices) == (20, {"Payments": "keep"})
    assert returned.outcome.late == 3, "records of 97, 98 and 99 ms; P was given up at 96"
    assert returned.switch.acts == ["seal", "resume", "resumed"]
    with pytest.raises(ConflictError, match="not paused"):
        returned.settle(Payments="keep")


@pytest.mark.parametrize("killed_at", ["seal", "resume", "resumed"])
def test_killed_anywhere_the_flow_is_paused_or_settled_and_the_next_run_finishes(
    returned: Returned, killed_at: str
) -> None:
    returned.switch.killed_at = killed_at
    with pytest.raises(KilledError):
        returned.settle(Payments="discard")
    if killed_at == "resumed":
        assert pause_in_force(returned.context) is None
        assert len(returned.notes) == 1
        return
    assert pause_in_force(returned.context) == PAUSE
    assert returned.notes == []

    returned.switch.killed_at = ""
    returned.settle(Payments="discard")

    [note] = returned.notes
    assert note.decision == "discard"
    assert returned.outcome is not None


def test_what_is_undecided_leaves_everything_as_it_is(returned: Returned) -> None:
    with pytest.raises(GateClosedError, match="topic Payments is undecided"):
        returned.settle()

    assert pause_in_force(returned.context) == PAUSE
    assert returned.outcome is None


def test_a_plan_writes_nothing(returned: Returned) -> None:
    before = returned.commands

    ReturnedFlow(returned.context, returned.logs).plan({"Payments": "keep"}, None, "ann")

    assert returned.commands == before
    assert returned.switch.acts == []


def test_nobody_settles_what_somebody_else_has_paused_again_in_between(returned: Returned) -> None:
    def pause_again(_: object) -> bool:
        returned.switch.pause(replace(PAUSE, request="r2"))
        return True

    with pytest.raises(ConflictError, match="paused again"):
        ReturnedFlow(returned.context, returned.logs).settle(
            {"Payments": "merge"}, None, "ann", approve=pause_again
        )
    assert pause_in_force(returned.context) is not None


@pytest.mark.parametrize(("again", "said"), [(True, "paused again"), (False, "settled")])
def test_what_happens_to_the_pause_at_the_very_last_moment_is_not_skipped(
    returned: Returned, again: bool, said: str
) -> None:
    """Between the last look and the transaction; its own decision would come too late."""
    resume = returned.switch.resume

    def overtaken(decided: Mapping[bytes, bytes] = {}, request: str | None = None) -> bool:
        resume(request=PAUSE.request)
        if again:
            returned.switch.pause(replace(PAUSE, request="r2"))
        return resume(decided, request)

    returned.switch.resume = overtaken  # type: ignore[method-assign]

    with pytest.raises(ConflictError, match=said):
        returned.settle(Payments="discard")
    assert returned.notes == []
    assert (pause_in_force(returned.context) is not None) == again


def test_the_outcome_is_that_of_the_settlement_that_decided(returned: Returned) -> None:
    """Two engineers at once: the report had the choice of the one who came too late."""

    def at_the_decision(act: Callable[[], object]) -> ReturnedFlow:
        def show(text: str) -> None:
            if text == "the decision":
                act()

        return ReturnedFlow(returned.context, returned.logs, show)

    def is_killed() -> None:
        raise KilledError

    def bob_discards() -> None:
        with pytest.raises(KilledError):
            at_the_decision(is_killed).settle({"Payments": "discard"}, None, "bob")

    at_the_decision(bob_discards).settle({"Payments": "keep"}, None, "ann")

    [note] = returned.notes
    assert note.decision == "keep"
    assert returned.outcome is not None
    assert (returned.outcome.choices, returned.outcome.by) == ({"Payments": "keep"}, "ann")


def test_the_outcome_is_kept_for_each_move_that_has_given_the_source_up(
    returned: Returned,
) -> None:
    returned.switch.pause(replace(PAUSE, joined=("m2",)))

    returned.settle(Payments="merge")

    kept = returned.context.target.compacted_topic(internal_topics.MOVES).read()
    assert {b"outcome:m1", b"outcome:m2"} <= kept.keys()
    assert Outcome.decode(kept[b"outcome:m2"]).move_id == "m2"


def test_without_approval_nothing_is_decided(returned: Returned) -> None:
    done = ReturnedFlow(returned.context, returned.logs).settle(
        {"Payments": "merge"}, None, "ann", approve=lambda _: False
    )

    assert not done.applied
    assert pause_in_force(returned.context) == PAUSE


def test_a_copy_that_cannot_be_sealed_has_no_final_end_which_only_a_merge_can_do_without(
    returned: Returned,
) -> None:
    returned.switch.unsealed = {COPY: "no leader"}

    with pytest.raises(UnavailableError, match=r"P.Payments-0 on B cannot be sealed: no leader"):
        returned.settle(Payments="discard")
    assert pause_in_force(returned.context) == PAUSE

    returned.settle(Payments="merge")
    assert pause_in_force(returned.context) is None


def test_what_arrives_before_a_copy_is_sealed_is_no_residue(returned: Returned) -> None:
    seal = returned.switch.seal

    def arrive(copies: Collection[TopicPartition]) -> dict[TopicPartition, str]:
        returned.logs.ends[PAYMENTS] = CopyEnd(90, 91, 0, 100, 100)
        return seal(copies)

    returned.switch.seal = arrive  # type: ignore[method-assign]

    returned.settle(Payments="discard")

    assert [note.left_out for note in returned.notes] == [(90, 100)]


def test_a_log_that_lost_its_end_is_counted_and_cut(returned: Returned) -> None:
    returned.logs.ends[PAYMENTS] = CopyEnd(60, 81, 0, 100, 100, cut_from=60, cut_to=80)

    found = ReturnedFlow(returned.context, returned.logs).inspect()
    [entry] = found.partitions
    assert (found.shape, entry.only_copied, entry.residue) == ("shorter", 20, (60, 100))
    returned.settle(Payments="merge")

    [note] = returned.notes
    assert (note.decision, note.lost_from, note.lost_to, note.target_next) == ("cut", 60, 80, 81)


def test_a_rebuilt_topic_is_told_by_its_id_and_not_settled_unasked(
    returned: Returned, sites
) -> None:
    sites.clusters["P"].delete_topic("Payments")
    sites.clusters["P"].add_topic("Payments")
    sites.clusters["P"].produce("Payments", 0, 5)
    returned.logs.ends[PAYMENTS] = CopyEnd(0, 101, 0, 5, 5)

    found = ReturnedFlow(returned.context, returned.logs).inspect()

    assert (found.shape, found.records) == ("rebuilt", 5)
    with pytest.raises(GateClosedError, match="srm restore --from B --to P --topic Payments"):
        ReturnedFlow(returned.context, returned.logs).settle({}, "merge", "ann")


def test_a_restore_that_was_broken_off_is_finished_before_anything_is_settled(
    returned: Returned, sites
) -> None:
    sites.clusters["P"].delete_topic("Payments")
    sites.clusters["P"].add_topic("Payments")
    returned.logs.ends[PAYMENTS] = CopyEnd(0, 101, 0, 5, 5)
    p, back = returned.context.source, restore_flow(returned.context.config.flow)
    ensure_compacted(p, internal_topics.replication(back.source), 2)
    copy, original = (
        cluster.topics()[name].topic_id
        for cluster, name in ((returned.context.target, "P.Payments"), (p, "Payments"))
    )
    told = PartitionPosition(copy, 0, original, Position(5, 6, 9), 7, 0)
    state = internal_topics.replication(back.source)
    p.compacted_topic(state, REPORTS).write(records_of(SlotReport("0", 1, 1000, (told,))))
    record = RestoreRecord((PAUSE.request,), {}, "ann", 2)
    p.compacted_topic(state, COMMANDS).write({RESTORE_KEY: record.value()})

    with pytest.raises(GateClosedError, match="restore of topic Payments was interrupted"):
        returned.settle(Payments="merge")

    assert pause_in_force(returned.context) == PAUSE


def test_a_restore_that_has_begun_and_told_nothing_yet_keeps_its_topics_from_being_settled(
    returned: Returned, sites
) -> None:
    sites.clusters["P"].delete_topic("Payments")
    sites.clusters["P"].add_topic("Payments")
    returned.logs.ends[PAYMENTS] = CopyEnd(0, 101, 0, 0, 0)
    p, back = returned.context.source, restore_flow(returned.context.config.flow)
    ensure_compacted(p, internal_topics.replication(back.source), 2)
    begun = {"Payments": p.topics()["Payments"].topic_id}
    record = RestoreRecord(("r0", PAUSE.request), begun, "ann", 2)
    p.compacted_topic(internal_topics.replication(back.source), COMMANDS).write(
        {RESTORE_KEY: record.value()}
    )

    with pytest.raises(GateClosedError, match="restore of topic Payments was interrupted"):
        returned.settle(Payments="merge")

    returned.switch.pause(replace(PAUSE, request="r9"))
    returned.settle(Payments="merge")
    assert pause_in_force(returned.context) is None, "it was begun under an earlier pause"


def test_a_topic_that_is_not_there_any_more_is_missing(returned: Returned, sites) -> None:
    sites.clusters["P"].delete_topic("Payments")

    [topic] = ReturnedFlow(returned.context, returned.logs).inspect().topics

    assert (topic.shape, topic.partitions) == ("missing", ())
    assert returned.logs.walked == []


@pytest.mark.parametrize("paused", [True, False])
def test_the_residue_of_a_topic_that_the_flow_does_not_copy_is_an_error(
    returned: Returned, paused: bool
) -> None:
    if not paused:
        returned.settle(Payments="keep")

    with pytest.raises(NotFoundError, match="flow P->B does not copy Paymnts"):
        ReturnedFlow(returned.context, returned.logs).residue(["Payments", "Paymnts"])


def test_what_was_left_earlier_is_no_residue_but_stays_readable(returned: Returned) -> None:
    returned.settle(Payments="keep")
    [kept] = ReturnedFlow(returned.context, returned.logs).residue()
    shown: list[int] = []

    def take(_: object, records: Sequence[DecodedRecord]) -> bool:
        shown.extend(record.offset for record in records)
        return len(shown) < 3

    read_residue(returned.logs, [kept, kept], take)
    returned.switch.pause(PAUSE)
    returned.logs.ends[PAYMENTS] = CopyEnd(80, 81, 0, 100, 100, left_out=((80, 100),))

    assert (kept.state, kept.offset_from, kept.offset_to, kept.records) == ("kept", 80, 100, 20)
    assert shown == [80, 81, 82]
    assert ReturnedFlow(returned.context, returned.logs).inspect().records == 0


def route(cluster: Cluster, wanted: Route) -> None:
    ensure_compacted(cluster, internal_topics.ROUTING)
    record = {topic_subject("Payments").encode(): wanted.value()}
    cluster.compacted_topic(internal_topics.ROUTING).write(record)


@pytest.mark.parametrize("choice", ["keep", "discard"])
def test_what_clients_write_under_a_route_to_the_source_is_no_residue(
    returned: Returned, choice: str
) -> None:
    """They were sent there, by an unplanned move of the target, before the return was settled."""
    route(returned.context.source, Route(ERA, "P", "go", "m2", decided=True))

    with pytest.raises(
        GateClosedError, match=r"move m2 has sent .* to P.* not count as residue: --merge Payments"
    ):
        returned.settle(Payments=choice)
    assert (returned.notes, pause_in_force(returned.context)) == ([], PAUSE)
    returned.settle(Payments="merge")


def test_a_route_that_gives_the_source_up_leads_nobody_there(returned: Returned) -> None:
    """It holds the clients of the source until the disaster's own move sends them elsewhere."""
    route(returned.context.target, Route(ERA, "P", "hold", "m1"))

    returned.settle(Payments="keep")

    assert [note.decision for note in returned.notes] == ["keep"]


def test_a_partition_without_an_answer_is_not_decided_about_unseen(returned: Returned) -> None:
    returned.logs.ends[PAYMENTS] = UnavailableError("its leader is away")

    with pytest.raises(GateClosedError, match="Payments-0: its leader is away"):
        returned.settle(Payments="discard")
    returned.settle(Payments="merge")

    assert returned.notes == []
    assert pause_in_force(returned.context) is None
    assert returned.outcome is not None
    assert returned.outcome.unread == ("Payments-0: its leader is away",)


def test_the_cluster_that_returned_gets_the_routes_that_it_has_not_seen(
    returned: Returned,
) -> None:
    """The next move that reads it alone would take its clients for those of the move before."""
    context = returned.context
    request = MoveRequest("failover", "P", "B", mode="unplanned")
    plan = MovePlan("m1", 0, request, ("Payments",), (), (), {})
    ensure_compacted(context.target, internal_topics.MOVES)
    context.target.compacted_topic(internal_topics.MOVES).write({b"plan:m1": plan.value()})
    route(context.target, Route(ERA, "B", "go", "m1", 5, decided=True))

    returned.settle(Payments="merge")

    routes = RoutingHistory.read(context.source).routes
    assert routes[topic_subject("Payments")].move_id == "m1"


def test_what_a_topic_got_before_its_own_move_joined_the_pause_is_lost_by_that_move(
    returned: Returned,
) -> None:
    """They counted as written after the move: its report had 17 lost records instead of 19."""
    context, moves = returned.context, internal_topics.MOVES
    request = MoveRequest("failover", "P", "B", mode="unplanned")
    plan = MovePlan("m2", 0, request, ("Payments",), (), (), {})
    gone = MoveProgress("m2").at("holding", 98).at("gone", 98)
    ensure_compacted(context.target, moves)
    records = {b"plan:m2": plan.value(), b"progress:m2": gone.value()}
    context.target.compacted_topic(moves).write(records)
    returned.switch.pause(replace(PAUSE, joined=("m2",)))
    returned.logs.ends[PAYMENTS] = CopyEnd(80, 81, 0, 100, 100, epoch=5)

    returned.settle(Payments="keep")

    assert returned.outcome is not None
    assert (returned.outcome.records, returned.outcome.late) == (20, 1), "that of 99 ms"


@pytest.mark.parametrize("choice", ["keep", "discard"])
def test_nothing_is_left_out_while_the_move_that_paused_the_flow_is_undecided(
    returned: Returned, choice: str
) -> None:
    """Its release leaves the clients on the source: what they wrote is no residue."""
    context, moves = returned.context, internal_topics.MOVES
    request = MoveRequest("failover", "P", "B", mode="unplanned")
    plan = MovePlan("m1", 0, request, ("Payments",), (), (), {})
    ensure_compacted(context.target, moves)
    context.target.compacted_topic(moves).write({b"plan:m1": plan.value()})

    with pytest.raises(GateClosedError, match="move m1 has paused P->B and is planned"):
        returned.settle(Payments=choice)

    assert pause_in_force(context) == PAUSE
    gone = MoveProgress("m1").at("gone", 5)
    context.target.compacted_topic(moves).write({b"progress:m1": gone.value()})
    assert returned.settle(Payments=choice).applied


def test_an_outcome_of_any_size_is_kept_in_parts(returned: Returned) -> None:
    """3 000 partitions with residue and 200 groups that had read of it make 1.5 MB."""
    topics = [f"payments.transactions.v{number}" for number in range(50)]
    places = [f"{topic}-{number}" for number in range(60) for topic in topics]
    outcome = Outcome(
        *("m1", "P->B", "same", 7, "ann"),
        tuple(
            PartitionOutcome(topic, number, 123_456_789, 123_459_999, 3_210)
            for number in range(60)
            for topic in topics
        ),
        {
            f"group-{group}": GroupOutcome(
                dict.fromkeys(places[group : group + 30], 321),
                dict.fromkeys(places[group : group + 30], 123_456_789),
            )
            for group in range(200)
        },
        dict.fromkeys(topics, "merge"),
        tuple(f"{place}: no leader" for place in places),
    )
    store_outcome(returned.context, outcome)

    records = returned.context.target.compacted_topic(internal_topics.MOVES).read()
    assert max(map(len, records.values())) <= 500_000
    found = MoveRecords.read(returned.context.target).document("outcome:m1")
    assert found is not None
    assert Outcome.decode(found) == outcome


def test_an_outcome_that_cannot_be_written_does_not_stop_the_settlement(
    returned: Returned, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object) -> object:
        raise AuthorizationError("not allowed")

    monkeypatch.setattr("srm.engine.recovery.create_control_topics", refuse)
    done = returned.settle(Payments="merge")

    assert done.applied
    assert pause_in_force(returned.context) is None
    assert "the outcome of move m1 is not on B" in caplog.text


@pytest.mark.parametrize(
    ("shape", "log_start", "gone_from"),
    [("same", 140, 100), ("same", 100, None), ("rebuilt", 140, None)],
)
def test_what_retention_took_before_it_was_copied_is_gone(
    shape: Shape, log_start: int, gone_from: int | None
) -> None:
    assigned = AssignedPartition("T", 0, "id", "P.T", "copy")

    found = _partition(assigned, shape, CopyEnd(100, 90, log_start, 150, 150))

    assert found.gone_from == gone_from
