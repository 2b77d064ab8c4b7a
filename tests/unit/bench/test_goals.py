"""Goals: reached or not, and open where something was not measured."""

from __future__ import annotations

from dataclasses import replace

from bench.cases import CASES
from bench.goals import GOALS, Verdict, ratios, summary, verdicts
from bench.results import Latency, Result
from hypothesis import given
from hypothesis import strategies as st

RESULT = Result("1kb", "srm", "1 KB", "copy", records=1)
ONE_KB = "records per CPU second, 1 KB in batches of 128 KB, to mm2-tuned"
P50 = "latency p50 at 1 000 records/s, to mm2-default"


def verdict(name: str, *results: Result) -> Verdict:
    return next(v for v in verdicts(results) if v.name == name)


def copied(engine: str, per_cpu_second: float, case: str = "1kb") -> Result:
    return replace(RESULT, case=case, engine=engine, records_per_cpu_second=per_cpu_second)


def test_nothing_measured_leaves_every_goal_open() -> None:
    assert [v.reached for v in verdicts([])] == [None] * len(GOALS)


@given(st.integers(1, 10**7), st.integers(1, 10**6))
def test_a_ratio_is_reached_from_its_target_on(ours: int, theirs: int) -> None:
    found = verdict(ONE_KB, copied("srm", ours), copied("mm2-tuned", theirs))

    assert found.reached == (ours >= 12 * theirs)


def test_default_settings_do_not_stand_in_for_tuned_ones() -> None:
    found = verdict(ONE_KB, copied("srm", 100), copied("mm2-default", 1))

    assert found.reached is None


def test_latency_is_reached_up_to_its_target() -> None:
    def seen(engine: str, p50: float) -> Result:
        return replace(RESULT, case="latency-1000", engine=engine, latency_ms=Latency(p50, 9, 9, 9))

    assert verdict(P50, seen("srm", 2.0), seen("mm2-default", 4.0)).reached is True
    assert verdict(P50, seen("srm", 2.1), seen("mm2-default", 4.0)).reached is False


def test_an_idle_replicator_that_uses_nothing_reaches_the_goal() -> None:
    idle = replace(RESULT, case="idle", idle_cpu_percent=0.0)

    assert verdict("idle CPU, 100 quiet partitions", idle).reached is True


def test_each_goal_is_reached_by_results_that_are_good_enough() -> None:
    engines = {"srm": 1e6, "mm2-tuned": 1.0, "mm2-default": 1.0, "socket-copy": 1.0}
    results = [
        replace(
            RESULT,
            case=case.name,
            engine=engine,
            records_per_second=figure,
            records_per_cpu_second=figure,
            megabytes_per_cpu_second=figure,
            latency_ms=Latency(*[1 / figure] * 4, floor={"p50": 0.0}),
            wall_seconds=1.0,
            cpu_seconds=1 / figure,
            source_broker_cpu_seconds=1 / figure,
            target_broker_cpu_seconds=1 / figure,
            idle_cpu_percent=1 / figure,
            first_record_seconds=1 / figure,
            details={"max_elsewhere_ms": 1},
        )
        for case in CASES
        for engine, figure in engines.items()
    ]
    names = ("cold_cpu_seconds", "megabytes", "warm_seconds", "warm_translate_seconds")
    few = dict.fromkeys((*names, "second_seconds", "seconds", "longest_pause_ms"), 0.001)
    results += [
        replace(RESULT, case=case, engine="srm", details=few)
        for case in ("map-irregular", "map-pass", "map-start")
    ]

    assert [v.name for v in verdicts(results) if not v.reached] == []


def test_ratios_say_ours_divided_by_theirs() -> None:
    ours = replace(RESULT, records_per_second=30.0, latency_ms=Latency(1, 2, 3, 4))
    theirs = replace(RESULT, records_per_second=10.0, latency_ms=Latency(2, 2, 2, 2))

    assert ratios(ours, theirs) == {
        "records_per_second": 3.0,
        "latency_p50": 0.5,
        "latency_p95": 1.0,
        "latency_p99": 1.5,
    }


def test_summary_has_every_pair_that_was_measured() -> None:
    found = summary([copied("srm", 10), copied("mm2-tuned", 2), copied("mm2-default", 1, "tiny")])

    assert [(r["case"], r["to"]) for r in found["ratios"]] == [("1kb", "mm2-tuned")]
