"""Windows are stored as they end, and are what a plain recomputation says, whatever happened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.raw_metrics import measured, values

from srm.domain.metrics import Measured, RawMetric, WindowMetric, Windows
from srm.domain.names import internal_topics
from srm.engine.metrics.metrics import WindowSpec, stored_windows
from srm.engine.ports import FlowContext
from srm.errors import UnavailableError
from srm.replication.driver.duties import keep_windows
from srm_lab.testing.fake_cluster import FakeCluster
from srm_lab.testing.fake_compacted import FakeMapReader
from srm_lab.testing.flows import P_TO_B, FakeClock, flow_config

START_MS = 1_700_000_000_000
SPEC = WindowSpec(window_ms=20_000, slide_ms=10_000, look_back_ms=400_000, keep_all_ms=400_000)
RAW = RawMetric(0, 1000, "P", "B", "pay", "P.pay", 0, 10, 5000, 1, 9, 40, 10, 7)


@dataclass
class Topic:
    """The raw topic: values with their timestamps; ``lost`` says that a reader begins again."""

    clock: FakeClock
    entries: list[tuple[int, bytes]] = field(default_factory=list)
    lost: bool = False
    opened: int = 0

    def write(self, *metrics: Measured) -> None:
        self.entries += [(self.clock(), value) for value in values(metrics)]

    @contextmanager
    def open(self, since_ms: int) -> Iterator[Log]:
        self.opened += 1
        self.lost = False
        yield Log(self, since_ms)


@dataclass
class Log:
    topic: Topic
    since_ms: int
    at: int = 0
    caught_up: bool = False

    @property
    def rewound(self) -> bool:
        return self.topic.lost

    def poll(self, _timeout_s: float) -> list[tuple[bytes, bytes | None]]:
        found = self.topic.entries[self.at :]
        self.at = 0 if self.topic.lost else len(self.topic.entries)
        self.caught_up = True
        if self.topic.lost:
            return []
        return [(b"0", value) for time_ms, value in found if time_ms >= self.since_ms]


@dataclass
class Script:
    """Stands in for the event that ends the thread: time goes by in its waits, and things happen.

    After the last of them it is set.
    """

    clock: FakeClock
    happenings: list[Callable[[], None]]
    seconds: float = 0.0

    def is_set(self) -> bool:
        return not self.happenings

    def wait(self, seconds: float) -> bool:
        self.clock.advance(round(seconds * 1000))
        self.seconds += seconds
        if self.happenings:
            self.happenings.pop(0)()
        return self.is_set()


@dataclass
class Lab:
    clock: FakeClock = field(default_factory=lambda: FakeClock(START_MS))

    def __post_init__(self) -> None:
        self.target = FakeCluster("B", clock=self.clock)
        self.topic = Topic(self.clock)
        self.context = FlowContext(
            flow_config(),
            FakeCluster("P"),
            self.target,
            FakeMapReader(),
            FakeMapReader(),
            self.clock,
        )

    def keep(self, *happenings: Callable[[], None]) -> None:
        """Run the thread for as many waits, in each of which one of these happens."""
        script = Script(self.clock, list(happenings))
        keep_windows(
            self.context,
            self.topic.open,
            cast("object", script),  # type: ignore[arg-type]
            SPEC,
            clock=lambda: script.seconds,
        )

    def stored(self) -> tuple[WindowMetric, ...]:
        return stored_windows(self.target)

    def writes(self) -> int:
        written: list[bytes] = []
        table = self.target.compacted_topic(internal_topics.METRICS_WINDOWS)
        table.scan(lambda _, key, value: written.append(key))
        return len(written)

    def traffic(self, **changes: object) -> Callable[[], None]:
        """Something is copied now."""
        return lambda: self.topic.write(replace(RAW, time_ms=self.clock(), **changes))  # type: ignore[arg-type]


def nothing() -> None:
    """Nothing happens."""


@pytest.fixture
def lab() -> Lab:
    return Lab()


def test_a_window_is_stored_once_it_has_ended(lab):
    lab.keep(lab.traffic(), nothing, nothing, nothing, nothing)

    topic = [w for w in lab.stored() if w.level == "topic"]
    assert [(w.start_ms - START_MS, w.records) for w in topic] == [(-10_000, 10), (0, 10)]


def test_an_idle_flow_writes_nothing_at_all(lab):
    lab.keep(*[nothing] * 200)

    assert internal_topics.METRICS_WINDOWS not in lab.target.topics()


def test_a_window_is_written_once(lab):
    lab.keep(*[lab.traffic()] * 10, *[nothing] * 4)

    assert lab.writes() == len(lab.stored())


def test_what_comes_late_is_counted_in_windows_that_were_stored(lab):
    late = replace(RAW, time_ms=START_MS + 8_000, partition=1, records=90)
    lab.keep(lab.traffic(), *[nothing] * 8, lambda: lab.topic.write(late), nothing)

    assert {w.records for w in lab.stored()} == {100}


def test_another_thread_writes_nothing_that_is_stored_already(lab):
    lab.keep(*[lab.traffic()] * 6, *[nothing] * 3)
    before = lab.writes()

    lab.keep(nothing, nothing)

    assert lab.writes() == before


def test_what_was_told_while_nobody_looked_is_made_up_for(lab):
    lab.keep(lab.traffic(), nothing)
    lab.clock.advance(100_000)
    lab.traffic()()
    lab.clock.advance(60_000)

    lab.keep(nothing)

    ended_ms = sorted({w.end_ms - START_MS for w in lab.stored()})
    assert ended_ms == [10_000, 20_000, 120_000, 130_000]


def test_a_target_that_is_away_is_waited_for(lab):
    lab.keep(
        lab.traffic(),
        lambda: lab.target.fail(UnavailableError("B is away")),
        *[nothing] * 5,
        lab.target.recover,
        *[nothing] * 5,
    )

    assert {w.records for w in lab.stored()} == {10}


def test_what_nobody_has_expected_is_waited_out_and_told_with_its_place(lab, caplog):
    """The thread ended, and there were no windows any more until the replicator started again."""
    failing = [TypeError("nobody has expected this")] * 3
    opened = lab.topic.open

    def open_log(since_ms: int):
        if failing:
            raise failing.pop()
        return opened(since_ms)

    lab.topic.open = open_log
    lab.keep(lab.traffic(), *[nothing] * 9)

    assert {w.records for w in lab.stored()} == {10}
    [told] = [record for record in caplog.records if "metrics windows fails" in record.message]
    assert told.exc_info


def test_records_that_are_read_again_are_not_counted_again(lab):
    def lose() -> None:
        lab.topic.lost = True

    lab.keep(lab.traffic(), nothing, lose, *[nothing] * 6)

    assert lab.topic.opened == 2
    assert {w.records for w in lab.stored()} == {10}


def test_windows_that_nobody_needs_any_more_are_removed(lab):
    lab.keep(lab.traffic(), *[nothing] * 100)
    every = {w.start_ms for w in lab.stored()}

    lab.clock.advance(SPEC.keep_ms)
    lab.keep(nothing)

    assert every
    assert lab.stored() == ()


def test_a_window_that_its_topic_has_lost_is_stored_again_as_long_as_it_can_be_computed(lab):
    """A topic that was truncated by an election: whoever wrote the window had its answer."""
    table = lab.target.compacted_topic(internal_topics.METRICS_WINDOWS)
    lost: list[bytes] = []

    def lose() -> None:
        lost.extend(key for key in table.read())
        table.write(dict.fromkeys(lost))

    lab.keep(lab.traffic(), *[nothing] * 5, lose, *[nothing] * 25)

    assert lost
    assert {w.key() for w in lab.stored()} >= set(lost)


def test_a_flow_may_be_left_to_the_aggregation(lab):
    config = replace(lab.context.config, metrics_windows_continuous=False)
    lab.context = replace(lab.context, config=config)

    lab.keep(lab.traffic(), *[nothing] * 9)

    assert lab.topic.opened == 0


def test_a_record_that_is_no_metric_is_skipped(lab):
    junk = (START_MS + 1000, b"junk")
    lab.keep(lambda: lab.topic.entries.append(junk), lab.traffic(), *[nothing] * 4)

    assert {w.records for w in lab.stored()} == {10}


def set_clock(lab: Lab, by_ms: int) -> Callable[[], None]:
    """The wall clock of the machine is set."""

    def happen() -> None:
        lab.clock.time_ms += by_ms

    return happen


HOUR_MS = 3_600_000


@pytest.mark.parametrize("set_by_ms", [HOUR_MS, -HOUR_MS])
def test_windows_are_written_on_at_once_whichever_way_the_clock_was_set(lab, set_by_ms):
    """One clock, of driver and slots: what was stored under the wrong time is of no use."""
    lab.keep(*[lab.traffic()] * 6, set_clock(lab, set_by_ms), *[lab.traffic()] * 6, nothing)

    newest_ms = max(w.end_ms for w in lab.stored())
    assert lab.clock() - 3 * SPEC.slide_ms < newest_ms <= lab.clock()
    assert all(w.end_ms - w.start_ms == SPEC.window_ms for w in lab.stored())


def test_a_clock_that_was_ahead_for_a_moment_takes_nothing_from_the_windows_of_before(lab):
    """What it had forgotten meanwhile was missing in the windows that it computed next."""
    before = []
    lab.keep(
        *[lab.traffic()] * 12,
        lambda: before.extend(w for w in lab.stored() if w.records),
        set_clock(lab, HOUR_MS),
        set_clock(lab, -HOUR_MS),
        lambda: lab.topic.write(replace(RAW, time_ms=before[-1].start_ms + 1, partition=1)),
        *[nothing] * 3,
    )

    after = {w.key(): w.records for w in lab.stored()}
    assert len(before) > 20
    assert all(after[w.key()] >= w.records for w in before)


def test_windows_of_a_time_that_is_still_to_come_are_removed(lab):
    lab.keep(*[lab.traffic()] * 6, *[nothing] * 3)
    lab.clock.time_ms -= HOUR_MS

    lab.keep(nothing)

    assert lab.stored() == ()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.lists(measured(), max_size=4),
            st.sampled_from(["away", "back", "lost", "restart"]),
        ),
        max_size=25,
    )
)
def test_whatever_happens_the_windows_are_those_of_a_plain_recomputation(
    events: list[list[Measured] | str],
) -> None:
    """Raw records come late and in any order; the target goes away; threads end and begin."""
    lab = Lab()
    runs: list[list[Callable[[], None]]] = [[]]
    told: list[Measured] = []

    def write(metrics: list[Measured]) -> Callable[[], None]:
        moved = [replace(m, time_ms=m.time_ms + START_MS - 150_000) for m in metrics]
        told.extend(moved)
        return lambda: lab.topic.write(*moved)

    def lose() -> None:
        lab.topic.lost = True

    happen: dict[str, Callable[[], None]] = {
        "away": lambda: lab.target.fail(UnavailableError("away")),
        "back": lab.target.recover,
        "lost": lose,
    }
    for event in events:
        if event == "restart":
            runs.append([])
        elif isinstance(event, str):
            runs[-1].append(happen[event])
        else:
            runs[-1].append(write(event))
    for run in runs:
        lab.keep(*run, nothing)
    lab.keep(lab.target.recover, *[nothing] * 12)

    first_ms = lab.clock() - SPEC.look_back_ms
    plain = Windows(P_TO_B, SPEC.window_ms, SPEC.slide_ms)
    plain.add(told)
    expected = {w.key(): w for w in plain.between(first_ms, lab.clock() - 10_000)}
    stored = {w.key(): w for w in lab.stored() if w.start_ms >= first_ms}
    assert {key: stored.get(key) for key in expected} == expected
    assert all(w.end_ms > lab.clock() - 10_000 for key, w in stored.items() if key not in expected)
