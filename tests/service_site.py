"""A site with everything that pages show: trouble, groups, moves, drills, two hours of windows.

Three clusters. ``P->B`` is degraded: a partition of ``orders`` stopped at a gap and lags since
twenty minutes. ``B->P`` is well, ``P->C`` has lost its replicator, ``C->P`` is paused.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from tests.service_views import StillWatch, config_of
from tests.unit.domain.moves.report.reporting import GROUP, REPORT
from tests.unit.engine.copying_records import CopiedTopic
from tests.unit.engine.status.test_loss_forecast import running

from srm.clock import now_ms
from srm.domain.flow_state.replication_records import PartitionNotes, Pause
from srm.domain.groups.translation import LogRange
from srm.domain.metrics import Statistics, WindowMetric
from srm.domain.moves.disaster import Drill, DrillGroup
from srm.domain.moves.plan import GroupPlan, LastPlace, MovePlan, PartitionMove
from srm.domain.moves.progress import Carrier, MoveProgress
from srm.domain.moves.request import MoveRequest
from srm.domain.moves.revisions import KeptReport
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.text.amount import set_key
from srm.engine.cluster_ports import TopicDescription
from srm.engine.flows.supervision import DriverStatus, SlotStatus
from srm.engine.groups.checkpoints import emit
from srm.engine.moves.facts import MoveFacts, TopicPair
from srm.engine.status.observing import FlowState, observe
from srm.engine.status.status import (
    FlowForecast,
    FlowStatus,
    PartitionRow,
    PartitionState,
    TopicStatus,
)
from srm.service.views.flow_rows import FlowLook, MoveLook, TargetLook
from srm.service.views.views import Views
from srm_lab.testing.flows import flow_config

P_B, B_P, P_C, C_P = Flow("P", "B"), Flow("B", "P"), Flow("P", "C"), Flow("C", "P")
MOVING = "failover-manual__2026-11-23T03-00-00-00-00-35ce51"
PAST = "failback-manual__2026-10-13T07-30-00-00-00"
EVIL = "<script>alert('group')</script>"
WHY = "records 120,000 to 131,400 were deleted on P before they were copied: <b>retention</b>"
TODO = set_key(P_B, "data.loss.policy", "continue")
LINE = (
    "if {} died now: 48,210 records (41 s) lost, 9,120 read again by 4 groups, 3 of 4 groups proven"
)
_S, _MIN = 1000, 60_000


def site(now: int | None = None, *, is_moving: bool = True) -> Views:
    """Return views of all that, as it is now."""
    at = now_ms() if now is None else now
    looks = (degraded(at), well(at), without_replicator(at), paused(at))
    moves = tuple(past_moves(at)) + ((moving(at),) if is_moving else ())
    watches = []
    for alias in ("P", "B", "C"):
        watch = StillWatch(
            TargetLook(
                alias,
                f"{alias}-q7Zk3bR0SOe1n_8yT2xA",
                {look.flow: look for look in looks if look.flow.target == alias},
                moves if alias == "B" else (),
                drills(at) if alias == "B" else (),
                at - 2 * _S,
            )
        )
        watch.add(*(w for w in windows(at) if w.target == alias))
        watches.append(watch)
    config = config_of(P_B, B_P, P_C, C_P)
    return Views(config, watches)  # type: ignore[arg-type]


def degraded(at: int) -> FlowLook:
    """Copies, but for one partition that stopped at a gap."""
    topics = (
        TopicStatus("orders", "P.orders", 3, 3, 911_200, 48_163, "stopped", WHY, TODO),
        TopicStatus("payments", "P.payments", 4, 4, 2_310_077, 31, "copying"),
        TopicStatus("refunds.v2_with-a.rather_long.name", "P.refunds.v2_with-a.rather_long.name",
                    2, 2, 18_220, 0, "caught-up"),
        TopicStatus("audit", "P.audit", 1, 0, 0, 16, "not-created"),
    )  # fmt: skip
    status = FlowStatus(
        P_B, enabled=True, time_ms=at, driver=_driver(alive=True), slots=_slots(), topics=topics,
        remaining=48_210,
    )  # fmt: skip
    partitions = {
        "orders": (
            _partition("orders", 0, "stopped", 120_000, 168_160, at - 20 * _MIN, WHY, at),
            _partition("orders", 1, "copying", 90_100, 90_102, at - 240 * _MIN),
            _partition("orders", 2, "copying", 88_411, 88_412, at - 240 * _MIN),
        ),
        "payments": tuple(
            _partition("payments", n, "copying", 577_000 + n, 577_008 + n, at - 240 * _MIN)
            for n in range(4)
        ),
    }
    return _look(P_B, status, partitions, at, groups=True)


def well(at: int) -> FlowLook:
    """Copies everything."""
    topic = TopicStatus("ledger", "B.ledger", 2, 2, 50_110, 3, "copying")
    status = FlowStatus(
        B_P, enabled=True, time_ms=at, driver=_driver(alive=True), slots=_slots(),
        topics=(topic,), remaining=3,
    )  # fmt: skip
    partitions = {
        "ledger": tuple(
            _partition("ledger", n, "copying", 25_000, 25_001 + n, at - 90 * _MIN) for n in (0, 1)
        )
    }
    return _look(B_P, status, partitions, at)


def without_replicator(at: int) -> FlowLook:
    """Nobody copies since six minutes."""
    topic = TopicStatus("orders", "P.orders", 3, 3, 40_000, 7_200, "waiting")
    status = FlowStatus(
        P_C, enabled=True, time_ms=at, driver=_driver(alive=False, age_ms=6 * _MIN),
        topics=(topic,), remaining=7_200,
    )  # fmt: skip
    return _look(P_C, status, {}, at)


def paused(at: int) -> FlowLook:
    """Somebody has paused it."""
    pause = Pause("r1", "ada@ops", "C is rebuilt", at - 51 * _MIN)
    status = FlowStatus(C_P, enabled=True, time_ms=at, pause=pause)
    return _look(C_P, status, {}, at)


def windows(at: int) -> tuple[WindowMetric, ...]:
    """Measure two hours; of ``P->B`` twelve minutes are missing, then its lag grows."""
    return _windows(at // _MIN)


@lru_cache(maxsize=2)
def _windows(minute: int) -> tuple[WindowMetric, ...]:
    return tuple(_measure(minute))


def _measure(minute: int) -> Iterator[WindowMetric]:
    for number in range(119, 0, -1):
        start = (minute - number) * _MIN
        wave = 1 + 0.25 * math.sin(number / 7) + 0.06 * math.sin(number * 2.1)
        lag = 30 + 2_400 * max(0, 20 - number) if number <= 20 else 30 * wave
        if not 60 <= number < 72:
            yield _window(P_B, "", start, 1_840_000 * wave, 18 * wave, lag)
            yield _window(P_B, "orders", start, 640_000 * wave, 21 * wave, lag)
            yield _window(P_B, "payments", start, 1_200_000 * wave, 15 * wave, 12 * wave)
        yield _window(B_P, "", start, 96_000 * wave, 9 * wave, 2 * wave)
        if number > 6:
            yield _window(P_C, "", start, 410_000 * wave, 31 * wave, 14 * wave)


def drills(at: int) -> tuple[Drill, ...]:
    """Two rehearsals: one could not prove everything, one warns."""
    good = DrillGroup("billing", 3, 3, 3)
    bad = DrillGroup("fraud", 3, 2, 2, ("orders-0: offset 120,000 is not copied",))
    return (
        Drill("drill-2", "P->B", "done", at - 26 * 60 * _MIN, "h", 1, groups=(good, bad),
              steps={"plan": 1.2, "apply": 0.8, "read": 2.4}),
        Drill("drill-1", "P->B", "done", at - 50 * 60 * _MIN, "h", 1, groups=(good,),
              steps={"plan": 1.1, "apply": 0.7, "read": 1.9}, warnings=("no way back",)),
    )  # fmt: skip


def past_moves(at: int) -> Iterator[MoveLook]:
    """Yield six moves there and back, one of which was not clean, and one that was given up."""
    for number, (rto, rpo, re_read) in enumerate(
        [(4.2, 0, 0), (6.8, 0, 12), (3.9, 0, 0), (18.4, 312, 940), (5.1, 0, 0), (4.4, 0, 0)]
    ):
        there = number % 2 == 0
        begun = at - (40 - number * 6) * 24 * 60 * _MIN - 7 * _MIN
        yield _moved(f"{number}", begun, rto, rpo, re_read, there=there)
    begun = at - 3 * 24 * 60 * _MIN
    times = {"holding": begun + 4_000, "held": begun + 4_200, "released": begun + 49_000}
    plan = _plan("failover-manual__2026-11-20T08-12-00-00-00-d080e7", begun, ("billing",))
    why = "replication of payments-3 is stopped: records 987 to 1955 are gone"
    yield MoveLook(plan, MoveProgress(plan.move_id, step="released", times_ms=times, reason=why))


def moving(at: int) -> MoveLook:
    """Return a move that waits for what is still to be copied."""
    plan = _plan(MOVING, at - 52 * _S, ("billing", "fraud"))
    times = {"holding": at - 31 * _S, "held": at - 31 * _S}
    waits = ("replication of payments from P is 1,204 records behind",)
    progress = MoveProgress(plan.move_id, step="held", times_ms=times)
    carrier = Carrier("process 17 on host-7", at - 2 * _S, alive=True, waits=waits)
    return MoveLook(plan, progress, carrier=carrier)


def _moved(name: str, begun: int, rto: float, rpo: int, re_read: int, *, there: bool) -> MoveLook:
    move_id = f"{'failover' if there else 'failback'}-manual__2026-10-1{name}T07-30-00-00-00"
    plan = _plan(move_id, begun, ("billing", "fraud", "ledger"), there=there)
    share = {"hold": 0.2, "wait and apply": 0.45, "go": 0.05, "resume": 0.3}
    groups = {
        group: replace(
            GROUP, lag_at_hold=50 * n, re_read=re_read if n == 1 else 0, members_at_hold=n,
            rto_seconds=rto * (1 - 0.09 * n), assigned_seconds=rto * (0.8 - 0.09 * n),
            first_commit_seconds=rto * 1.2,
        )
        for n, group in enumerate(("billing", "fraud", "ledger"), 1)
    }  # fmt: skip
    report = replace(
        REPORT, move_id=move_id, operation=plan.request.operation, source=plan.request.source,
        target=plan.request.target, created_ms=begun, ok=not re_read,
        problems=(f"group billing read {re_read} records again",) if re_read else (),
        rpo_records=rpo, rpo_at_least=rpo, rpo_at_most=rpo,
        rto_seconds=rto, rto_steps={k: v * rto for k, v in share.items()},
        groups=groups, residue={}, assigned_seconds=rto * 0.8, rpo_seconds=0.4 if rpo else 0.0,
        times_ms={"holding": begun + 20_000, "gone": begun + 24_000},
    )  # fmt: skip
    after = {"holding": 20.0, "held": 20 + rto * 0.5, "applied": 20 + rto * 0.65,
             "gone": 20 + rto * 0.7, "verified": 20 + rto, "reported": 22 + rto}  # fmt: skip
    times = {step: begun + int(seconds * _S) for step, seconds in after.items()}
    members = {name: group.members_at_hold for name, group in groups.items()}
    progress = MoveProgress(move_id, step="reported", times_ms=times, members_at_hold=members)
    return MoveLook(plan, progress, KeptReport.made(report, None))


def _plan(move_id: str, begun: int, groups: tuple[str, ...], *, there: bool = True) -> MovePlan:
    source, target = ("P", "B") if there else ("B", "P")
    row = PartitionMove("payments", 0, "P.payments", "forward", "translated", 100, 3, 101)
    return MovePlan(
        move_id, begun, MoveRequest("failover" if there else "failback", source, target),
        ("orders", "payments"), tuple(GroupPlan(name, (), (row,)) for name in groups), (), "f",
    )  # fmt: skip


def _look(
    flow: Flow,
    status: FlowStatus,
    partitions: Mapping[str, tuple[PartitionRow, ...]],
    at: int,
    *,
    groups: bool = False,
) -> FlowLook:
    seen = _seen()
    assert seen.outlook is not None
    assert seen.status.standing is not None
    standing = replace(
        seen.status.standing, line=LINE.format(flow.source),
        forecast=replace(seen.status.standing.forecast, made_ms=at),
    )  # fmt: skip
    status = replace(status, standing=None if status.pause else _standing(standing, groups=groups))
    outlook = _facts(seen.outlook, at, groups=groups)
    status = replace(status, heard_ms=at - 1 * _S)
    view = FlowState(status, partitions, outlook)
    return FlowLook(flow, flow_config(flow), view, at - 2 * _S)


def _standing(standing: FlowForecast, *, groups: bool) -> FlowForecast:
    return standing if groups else replace(standing, line="if it died now: 0 records lost")


def _seen() -> FlowState:
    world = CopiedTopic()
    world.write(b"0", b"1")
    world.copy()
    world.commit("audit", 1)
    running(world)
    emit(world.forward)
    return observe(world.forward)


def _facts(outlook: MoveFacts, at: int, *, groups: bool) -> MoveFacts:
    """Return the facts of a lost source with three groups, one with a place that is gone."""
    topics = ("orders", "payments")
    there = {name: TopicDescription(name, name, 3) for name in (f"P.{topic}" for topic in topics)}
    copies = [TopicPartition(name, n) for name in there for n in range(3)]
    places = {
        name: {
            place: LastPlace(
                88_900 + place.partition, 88_000 + place.partition, time_ms=at - 9 * _S
            )
            for place in copies[: 3 * (number + 1)]
        }
        for number, name in enumerate(("billing", "fraud", EVIL) if groups else ())
    }
    if groups:
        places["fraud"][TopicPartition("P.orders", 3)] = LastPlace(
            89_500, 88_600, time_ms=at - 9 * _S
        )
    names = (*places, "never-seen") if groups else ()
    log = LogRange(0, 90_000, 90_000)
    return replace(
        outlook,
        topics=topics,
        groups=tuple(sorted(names)),
        pairs=tuple(TopicPair(topic, f"P.{topic}", topic, "forward") for topic in topics),
        source=replace(outlook.away, places=places, proof=None),
        target=replace(outlook.target, topics=there, logs=dict.fromkeys(copies, log)),
    )


def _partition(
    topic: str,
    number: int,
    state: PartitionState,
    done: int,
    end: int,
    since: int,
    reason: str = "",
    at: int = 0,
) -> PartitionRow:
    note = PartitionNotes(
        "0", topic, number, "id", 11_400, 1, 120_000, 131_400, "deleted by retention", "",
        at - 20 * _MIN,
    )  # fmt: skip
    notes = (note,) if reason else ()
    return PartitionRow(
        topic, number, state, done, end, done + 7, end - done, since, reason, notes,
        TODO if reason else "",
    )  # fmt: skip


def _driver(*, alive: bool, age_ms: int = 1_200) -> DriverStatus:
    return DriverStatus("d", "local-1795401840319", "spark-7", 1, 0, age_ms=age_ms, alive=alive)


def _slots() -> tuple[SlotStatus, ...]:
    return tuple(SlotStatus(str(n), 1, 4, 900, alive=True) for n in range(2))


def _window(
    flow: Flow, topic: str, start: int, rate: float, latency: float, lag: float
) -> WindowMetric:
    def around(value: float) -> Statistics:
        return Statistics(value * 0.7, value * 1.6, value * 6, 6)

    def of_partitions(value: float) -> Statistics:
        return around(value / 6)

    settings: dict[str, Any] = {
        "byte_rate": of_partitions(rate),
        "replication_latency_ms": around(latency),
        "replication_records_lag": of_partitions(lag),
    }
    if flow == P_B:
        settings["checkpoint_latency_ms"] = around(latency * 40)
    return WindowMetric(
        flow.source, flow.target, "topic" if topic else "cluster", topic,
        f"{flow.source}.{topic}" if topic else "", start, start + _MIN, int(rate / 8),
        int(rate * 60), **settings,
    )  # fmt: skip
