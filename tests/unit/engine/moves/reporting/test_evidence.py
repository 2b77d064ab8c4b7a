"""The report of a move as it is kept: signed revisions on both clusters, whatever dies."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise

import pytest
from tests import moves
from tests.unit.domain.moves.report.reporting import OUTCOME, signing_key
from tests.unit.engine.moves.control.moving import Killed, World, run_through
from tests.unit.engine.moves.giving_up import Disaster
from tests.unit.engine.moves.test_gone import acknowledge, gone

from srm.domain.moves.report import Approval
from srm.domain.moves.request import MoveRequest
from srm.domain.moves.revisions import KeptReport, SigningKey, chain_break
from srm.domain.names import internal_topics
from srm.engine.moves.context import MoveContext, Notary
from srm.engine.moves.store import MoveStore
from srm.engine.moves.verification import keep_report
from srm.errors import ConfigError, NotFoundError, UnavailableError

KEY = signing_key()
APPROVAL = Approval("ada@ops", "--yes", 5, "move 2 groups?", {"groups": 2})
NOTARY = Notary(lambda: KEY, {"srm": "1"}, "cd" * 32)
_REPORT = b"report:m1"

OUTCOME_OF_M1 = replace(OUTCOME, move_id="m1")


def stored(world: World, alias: str) -> list[KeptReport]:
    """Every revision that the log of a cluster holds, oldest first."""
    history = world.clusters[alias].compacted_topic(internal_topics.MOVES).read_history()
    return [KeptReport.decode(row.value) for row in history.get(_REPORT, ())]


def signing(world: World, read_key: Callable[[], SigningKey | None] = lambda: KEY) -> MoveContext:
    return replace(world.context(), notary=replace(NOTARY, read_key=read_key))


def finished(world: World) -> MoveContext:
    gone(world)
    context = signing(world)
    acknowledge(world, "far", 10)
    acknowledge(world, "near", 96)
    moves.verify(context, "m1")
    moves.report(context, "m1")
    return context


def test_the_report_is_signed_and_says_who_carried_the_move_out_and_where(world: World) -> None:
    context = finished(world)
    kept = moves.kept_report(context, "m1")

    kept.signed.check(KEY.public)
    report = kept.report
    assert (report.revision, report.versions, report.config_sha256) == (1, {"srm": "1"}, "cd" * 32)
    assert report.clusters == {"P": world.p.cluster_id(), "B": world.b.cluster_id()}
    assert [(one.subject, one.redirector, one.state) for one in report.followers] == [
        ("group:far", "routing", "processed"),
        ("group:near", "routing", "processed"),
    ]
    row = report.groups["far"].partitions[0]
    assert (row.committed, row.planned, row.applied, row.started) == (10, 10, 10, 10)
    assert stored(world, "P") == stored(world, "B") == [kept]
    assert moves.kept_reports(context) == (kept,)


def test_looking_again_without_news_opens_and_writes_nothing(world: World) -> None:
    context = finished(world)
    moves.watch_residue(context, "m1")
    writes, opened = world.writes.count, []
    open_writer = world.b.control_writer
    world.b.control_writer = lambda name: opened.append(name) or open_writer(name)

    before = moves.kept_report(context, "m1")
    moves.watch_residue(context, "m1")
    moves.report(context, "m1")

    assert moves.kept_report(context, "m1") == before
    assert (world.writes.count, opened) == (writes, []), "a step of another move goes on unfenced"


def test_news_becomes_the_next_revision_which_names_the_first(world: World) -> None:
    context = finished(world)
    world.p.produce("Payments", records=4)
    world.passing(1_000)
    moves.watch_residue(context, "m1")

    first, second = stored(world, "B")
    assert (second.report.revision, second.report.residue) == (2, {"Payments": 4})
    assert chain_break(first, second) is None
    for kept in (first, second):
        kept.signed.check(KEY.public)
    assert stored(world, "P") == [first, second]


def test_a_key_that_cannot_be_read_stops_no_move_and_signs_later(world: World) -> None:
    def broken() -> SigningKey:
        raise ConfigError("report.signing.key.location: gone.pem: No such file or directory")

    gone(world)
    moves.report(signing(world, broken), "m1")
    unsigned = moves.kept_report(world.context(), "m1")
    assert unsigned.signed.signature is None

    moves.report(signing(world), "m1")
    signed = moves.kept_report(world.context(), "m1")
    assert signed.report == unsigned.report
    signed.signed.check(KEY.public)


@pytest.mark.parametrize("after", [False, True])
def test_a_report_that_dies_at_any_write_is_kept_whole_by_the_next_call(
    world: World, after: bool
) -> None:
    context = finished(world)
    for number in range(1, 5):
        world.p.produce("Payments", records=4)
        world.passing(1_000)
        world.writes.die_at = (world.writes.count + number, after)
        with suppress(Killed):
            moves.watch_residue(context, "m1")
        world.writes.die_at = None
        moves.watch_residue(context, "m1")

    for alias in "PB":
        revisions = stored(world, alias)
        assert len(revisions) >= 4
        for earlier, later in pairwise(revisions):
            assert later.report.revision > earlier.report.revision
            assert chain_break(earlier, later) is None
            later.signed.check(KEY.public)
    assert stored(world, "P")[-1] == stored(world, "B")[-1]
    assert stored(world, "B")[-1].report.residue == {"Payments": 16}


def test_a_process_that_comes_late_does_not_replace_news_by_what_it_remembers(
    world: World,
) -> None:
    context = finished(world)
    plan, stale = MoveStore.read(context).load("m1")
    world.p.produce("Payments", records=4)
    world.passing(1_000)
    moves.watch_residue(context, "m1")

    assert keep_report(context, plan, stale).residue == {"Payments": 4}
    assert [kept.report.revision for kept in stored(world, "B")] == [1, 2]


def test_two_processes_that_report_at_once_make_one_chain(world: World) -> None:
    context = finished(world)
    world.p.produce("Payments", records=4)
    world.passing(1_000)

    def another() -> None:
        world.p.produce("Payments", records=3)
        moves.watch_residue(signing(world), "m1")

    world.writes.before[world.writes.count + 1] = another
    moves.watch_residue(context, "m1")

    assert not world.writes.before, "the other one has come between reading and writing"
    for alias in "PB":
        chain = stored(world, alias)
        assert [kept.report.revision for kept in chain] == list(range(1, len(chain) + 1))
        assert all(chain_break(earlier, later) is None for earlier, later in pairwise(chain))
        assert chain[-1].report.residue == {"Payments": 7}


def test_a_source_that_was_away_is_given_the_later_revision_when_it_is_back(world: World) -> None:
    context = finished(world)
    world.p.fail(UnavailableError("P is away"))
    moves.approve(context, "m1", APPROVAL)
    moves.report(context, "m1")
    assert moves.kept_report(context, "m1").report.revision == 2
    world.p.recover()
    assert [kept.report.revision for kept in stored(world, "P")] == [1]

    moves.approve(context, "m1", APPROVAL)  # any step that opens both clusters brings them level
    assert stored(world, "P")[-1] == stored(world, "B")[-1]
    assert stored(world, "P")[-1].report.approvals == (APPROVAL,)


def test_an_approval_is_kept_once_and_stands_in_the_report(world: World) -> None:
    context = signing(world)
    with pytest.raises(NotFoundError, match="move 'm1' is not known: plan it, then approve it"):
        moves.approve(context, "m1", APPROVAL)
    moves.plan(context, MoveRequest("failover", "P", "B", ("Payments",), ("near",)), "m1")

    again = replace(APPROVAL, by="bob@ops", how="typed failover", time_ms=9)
    assert moves.approve(context, "m1", APPROVAL) == (APPROVAL,)
    assert moves.approve(context, "m1", again) == (APPROVAL, again)
    writes = world.writes.count
    assert moves.approve(context, "m1", APPROVAL) == (APPROVAL, again)
    assert world.writes.count == writes

    assert moves.report(context, "m1").approvals == (APPROVAL, again)


def test_an_outcome_that_comes_later_makes_a_revision_of_its_own(world: World) -> None:
    context = finished(world)
    before = moves.kept_report(context, "m1").report.revision
    world.b.compacted_topic(internal_topics.MOVES).write(
        {OUTCOME_OF_M1.key(): OUTCOME_OF_M1.value()}
    )

    assert moves.watch_residue(context, "m1").outcome == OUTCOME_OF_M1
    kept = moves.kept_report(context, "m1")
    assert (kept.report.revision, kept.report.outcome) == (before + 1, OUTCOME_OF_M1)
    kept.signed.check(KEY.public)


def test_a_disaster_is_closed_by_its_outcome_in_one_chain_of_reports(world: World) -> None:
    disaster = Disaster(world)
    context = replace(disaster.context, notary=NOTARY)
    disaster.planned()
    world.p.fail()
    moves.approve(context, "m1", APPROVAL)
    moves.carry_out(context, "m1", poll_seconds=0.001)

    first = moves.kept_report(context, "m1").report
    assert (first.mode, first.rpo_at_least, first.outcome) == ("unplanned", 7, None)
    assert (first.rpo_records, first.rpo_seconds) == (None, None)
    assert first.approvals == (APPROVAL,)
    assert first.clusters == {"B": world.b.cluster_id()}, "the source is not asked"

    world.p.recover()
    world.b.compacted_topic(internal_topics.MOVES).write(
        {OUTCOME_OF_M1.key(): OUTCOME_OF_M1.value()}
    )
    moves.watch_residue(context, "m1")
    chain = stored(world, "B")
    assert chain[-1].report.outcome == OUTCOME_OF_M1
    assert chain[-1].report.forecast == first.forecast, "side by side"
    for earlier, later in pairwise(chain):
        assert chain_break(earlier, later) is None
        later.signed.check(KEY.public)


def test_what_is_damaged_next_to_a_report_does_not_prevent_it(world: World) -> None:
    context = finished(world)
    damaged = {b"outcome:m1": b"{", b"approval:m1": b"[1]"}
    world.b.compacted_topic(internal_topics.MOVES).write(damaged)

    assert moves.report(context, "m1").ok
    assert moves.approve(context, "m1", APPROVAL) == (APPROVAL,)


def test_members_that_follow_no_route_are_named_by_what_the_broker_says(world: World) -> None:
    run_through(world)
    world.start("near", "B", {})
    moves.verify(world.context(), "m1")
    followers = moves.report(world.context(), "m1").followers

    assert [(one.subject, one.redirector, one.state) for one in followers] == [
        ("group:near", "", "member")
    ]


def test_a_report_that_nobody_has_is_not_found(world: World) -> None:
    with pytest.raises(NotFoundError, match="no report of move 'm9' on B or P"):
        moves.kept_report(world.context(), "m9")
