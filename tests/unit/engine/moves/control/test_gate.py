from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srm.domain.groups.group_sync import GroupLedger
from srm.domain.groups.translation import LogRange
from srm.domain.moves.gate import ReplicationFacts, eta_seconds
from srm.domain.moves.plan import GroupPlan, PartitionMove
from srm.domain.moves.progress import MoveProgress, Observation
from srm.domain.moves.request import MoveRequest
from srm.domain.moves.routing import Route
from srm.domain.names.topics import OpenTransaction, TopicPartition
from srm.domain.text.amount import Reason
from srm.engine.cluster_ports import GroupDescription, Stamped
from srm.engine.moves.facts import Look, MoveFacts, SideFacts
from srm.engine.moves.history import RoutingHistory, RoutingTables
from srm.engine.ports import FlowMaps

REQUEST = MoveRequest("failover", "P", "B", wait_seconds=60)
HELD = Route(5, "P", "hold", "m1")


def position(state="translated", resume=10, there=10, **more):
    return PartitionMove("T", 0, "P.T", "forward", state, 10, 0, resume, there, **more)


TRANSACTION = OpenTransaction(TopicPartition("T", 0), 60, 7, 0, "someone", 12_000)


def partition(copied, end=100, start=0, number=0, stable_end=None, **more):
    log = LogRange(start, end if stable_end is None else stable_end, end)
    return ReplicationFacts(TopicPartition("T", number), copied, log, **more)


HELD_BACK = partition(60, stable_end=60, transactions=(TRANSACTION,))
TRANSACTION_REASON = (
    "40 records of T-0 on P cannot be copied: a transaction is open from offset 60 on "
    "(producer id 7, transactional id 'someone', age 12 s): end it, on P with "
    "'kafka-transactions.sh --bootstrap-server HOST:PORT abort --topic T --partition 0 "
    "--start-offset 60', or move without them: "
    "--accept-open-transactions (in the form: accept_open_transactions)"
)


@dataclass(frozen=True)
class Facts(MoveFacts):
    """Facts with the results of their look as given, not computed from maps."""

    plans: tuple[GroupPlan, ...] = ()
    replication: tuple[ReplicationFacts, ...] = ()
    report_age_ms: int | None = None


def routed(**routes):
    """Return the routes that both topics and groups have, by ``kind_name``."""
    names = {name.replace("_", ":").encode(): route for name, route in routes.items()}
    rows = {name: (Stamped(route.value(), 0),) for name, route in names.items()}
    return RoutingTables(RoutingHistory("B", rows))


OPEN = Facts(
    request=REQUEST,
    topics=("T",),
    groups=("g",),
    pairs=(),
    source=SideFacts("P", groups={"g": GroupDescription("g", "empty")}),
    target=SideFacts("B", groups={"g": GroupDescription("g", "dead")}),
    ledger=GroupLedger({}, {}),
    maps=FlowMaps({}),
    maps_ms=0,
    routing=routed(topic_T=HELD, group_g=HELD),
    plans=(GroupPlan("g", (), (position(),)),),
    replication=(partition(100),),
    report_age_ms=500,
)
HOLDING = MoveProgress("m1", step="held", times_ms={"holding": 4_000})
HOLD = Look(OPEN, HOLDING, 10_000, Observation(0.0))


def answer(facts):
    return replace(HOLD, facts=facts).status


def here(state="empty", members=(), reason="", **side):
    described = {"g": GroupDescription("g", state, members=members, reason=reason)}
    return replace(OPEN, source=replace(OPEN.source, groups=described, **side))


def there(state="dead", members=()):
    described = {"g": GroupDescription("g", state, members=members)}
    return replace(OPEN, target=replace(OPEN.target, groups=described))


def at(*rows):
    return replace(OPEN, plans=(GroupPlan("g", (), rows),))


def test_the_gate_is_open_when_everything_is_as_it_has_to_be():
    status = HOLD.status

    assert (status.ready, status.applied) == (True, True)
    assert (status.blocking, status.unapplied, status.timed_out) == ((), (), False)
    assert status.elapsed_seconds == 6


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (here("active", ("app@h",)), "still active on P (app@h)"),
        (there("active", ("app@h",)), "still active on B (app@h)"),
        (here("unknown"), "still active on P (state unknown)"),
        (here("unknown", reason="grant Describe"), "unknown: grant Describe"),
        (
            here(errors={"g": Reason("grant Describe on g")}),
            "offsets of group g cannot be read: grant",
        ),
        (
            here(pending={"g": {TopicPartition("T", 0)}}),
            "offsets of T-0 in a transaction on P that is",
        ),
        (at(position("not-copied-yet", None, remaining=3)), "not copied yet, 3 to go"),
        (at(position("map-behind", None, remaining=3)), "not copied yet, 3 to go"),
        (at(position("no-map", None, reason="never copied")), "never copied; is the replication"),
        (at(position("damaged-map", None, reason="block 7")), "block 7; restart the replicator"),
        (at(position("no-target", None, reason="no P.T-0")), "no P.T-0; create it"),
        (at(position("past-end", None, reason="ends at 5; wait")), "translated, ends at 5; wait"),
        (at(position("conflict", 10, 20)), "ahead of the translated 10"),
        (
            at(position(skipped=4, reason="as noted")),
            "would skip 4 records it has still to read (as",
        ),
        (replace(HOLD, moving={"T": 7}), "still written to on P (7 offsets since the hold)"),
        (replace(HOLD, moving={"T": 0}), "must be idle on P"),
        (replace(OPEN, routing=routed(group_g=HELD)), "topic:T is not held by this move"),
        (
            replace(OPEN, routing=routed(topic_T=HELD, group_g=replace(HELD, move_id="m2"))),
            "group:g is not held by this move (last set by m2)",
        ),
        (
            replace(OPEN, routing=routed(topic_T=HELD, group_g=replace(HELD, state="go"))),
            "group:g is not held",
        ),
        (
            replace(OPEN, replication=(partition(98),)),
            "replication of T from P is 2 records behind",
        ),
        (
            replace(OPEN, replication=(partition(None, 9, start=5),)),
            "4 records behind",
        ),
        (
            replace(OPEN, replication=(partition(1, 9, stopped=Reason("data lost")),)),
            "T-0 is stopped: data lost",
        ),
        (
            replace(OPEN, replication=(partition(None, 9, damage="block 7"),)),
            "the offset map of T-0 cannot be used: block 7",
        ),
        (
            replace(OPEN, replication=(HELD_BACK,)),
            TRANSACTION_REASON,
        ),
        (
            replace(OPEN, replication=(replace(HELD_BACK, transactions=(), hidden="no right"),)),
            "open from offset 60 on, its owner is not visible (no right)",
        ),
        (
            replace(OPEN, replication=(partition(1, 9),), report_age_ms=60_000),
            "last reported 1 min ago: is it running",
        ),
    ],
)
def test_each_single_thing_out_of_place_closes_the_gate_and_is_named(change, reason):
    status = change.status if isinstance(change, Look) else answer(change)

    assert not status.ready
    assert any(reason in line for line in status.blocking), status.blocking


def test_offsets_still_to_be_applied_leave_the_move_ready_but_the_gate_closed():
    status = answer(at(position(resume=10, there=9)))

    assert (status.ready, status.applied) == (True, False)
    assert status.unapplied == ("group g, P.T-0: offset on B is 9, intended is 10",)


def test_what_the_request_accepts_does_not_block():
    lenient = replace(REQUEST, accept_skips=True, overwrite=True)

    assert answer(replace(at(position(skipped=4)), request=lenient)).ready
    assert answer(replace(at(position("conflict", 10, 20)), request=lenient)).ready


def test_records_that_an_open_transaction_holds_back_are_counted_when_they_are_accepted():
    """What was copied up to the transaction still has to be: the flag is about nothing else."""
    lenient = replace(OPEN, request=replace(REQUEST, accept_open_transactions=True))
    ready = answer(replace(lenient, replication=(HELD_BACK,)))
    behind = answer(replace(lenient, replication=(replace(HELD_BACK, source_next=58),)))

    assert (ready.ready, ready.rpo_records) == (True, 40)
    assert ready.missing == (
        "T-0: 40 records missing on B from offset 60 on, 40 held back by open transactions",
    )
    assert behind.blocking[0] == "replication of T from P is 2 records behind"
    assert behind.rpo_records == 42


def test_records_that_were_never_copied_count_as_missing_on_the_target():
    replication = partition(100, lost=20)
    rows = (position(skipped=5, uncopied=5), position(skipped=9, uncopied=9))
    plans = tuple(GroupPlan(str(i), (), (row,)) for i, row in enumerate(rows))
    accepted = replace(REQUEST, accept_skips=True)
    status = answer(replace(OPEN, request=accepted, plans=plans, replication=(replication,)))

    assert status.rpo_records == 29
    assert status.missing == (
        "T-0: 20 records never copied to B, as noted",
        "T-0: 9 offsets from before the first record copied to B",
    )


@given(
    st.sampled_from(["empty", "dead", "active", "unknown"]),
    st.sampled_from(["empty", "dead", "active", "unknown"]),
    st.integers(0, 5),
    st.integers(0, 5),
    st.sampled_from(["translated", "no-commit", "not-copied-yet", "no-map", "conflict"]),
    st.booleans(),
    st.booleans(),
)
def test_the_gate_opens_only_when_all_conditions_hold(
    source_state, target_state, copied, end, state, applied, moving
):
    facts = replace(
        at(position(state, there=10 if applied else 3)),
        source=here(source_state).source,
        target=there(target_state).target,
        replication=(partition(copied, end),),
    )
    look = replace(HOLD, facts=facts, moving={"T": 1} if moving else {})

    expected = (
        source_state in {"empty", "dead"}
        and target_state in {"empty", "dead"}
        and copied >= end
        and state in {"translated", "no-commit"}
        and not moving
    )
    assert (look.status.ready, look.status.applied) == (expected, applied)


def test_the_forecast_follows_the_rate_of_copying():
    assert eta_seconds(((0, 100),), 10_000, 50) == 10
    assert eta_seconds(((0, 100),), 10_000, 100) is None
    assert eta_seconds((), 10_000, 50) is None
