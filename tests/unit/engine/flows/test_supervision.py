"""Who drives a flow, is it alive, and what is done about it: decisions over what topics say."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from tests.slot_reports import records_of
from tests.waiting import DEADLINE_S

from srm.domain.flow_state import liveness_thresholds
from srm.domain.flow_state.replication_records import (
    DRIVER_KEY,
    REQUEST_KEY,
    DriverHeartbeat,
    DriverRequest,
    PartitionPosition,
    PartitionStatus,
    SlotReport,
)
from srm.domain.names.topics import Flow
from srm.domain.offset_map.offset_map import Position
from srm.domain.text.amount import Reason
from srm.engine.flows import supervision
from srm.engine.flows.supervision import Watch, look, read_signs
from srm.engine.status.status import signs_line
from srm.errors import AuthorizationError, SrmError, UnavailableError

FLOW = Flow("P", "B")
OTHER = Flow("B", "P")
BEAT = DriverHeartbeat("d1", "app-1", "host", 4711, time_ms=1_000_000, flows=("P->B", "B->P"))
STOP = DriverRequest("r1", "stop", "ada@ops", 5)
RESTART = DriverRequest("r2", "restart", "ada@ops", 6)
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
TARGET_ID = "AAAAAAAAAAAAAAAAAAAAAg"


class Topic:
    """A state topic whose content the test sets; ``failure``: what comes of reading it."""

    def __init__(self, *records: DriverHeartbeat | DriverRequest) -> None:
        self.records: dict[bytes, bytes] = {}
        self.failure: SrmError | None = None
        self.put(*records)

    def put(self, *records: DriverHeartbeat | DriverRequest) -> None:
        for record in records:
            key = DRIVER_KEY if isinstance(record, DriverHeartbeat) else REQUEST_KEY
            self.records[key] = record.value()

    def read(self) -> dict[bytes, bytes]:
        if self.failure is not None:
            raise self.failure
        return dict(self.records)

    def read_commands(self) -> dict[bytes, bytes]:
        return self.read()

    def write(self, records: dict[bytes, bytes | None]) -> None:
        self.records |= {key: value for key, value in records.items() if value is not None}

    def beat(self, seconds: float, **changes: object) -> None:
        self.put(replace(BEAT, time_ms=BEAT.time_ms + round(seconds * 1000), **changes))


class Watcher:
    """Looks again and again, on a clock that the test moves."""

    def __init__(self, *topics: Topic, driver: str = "") -> None:
        self.topics = dict(zip((FLOW, OTHER), topics, strict=False))
        self.now = 1000.0
        self.watch = Watch.over(self.topics, self.now, driver)
        self.look()

    def look(self, after: float = 0.0) -> str:
        self.now += after
        self.watch = self.watch.after(look(self.topics), self.now)
        return self.watch.verdict(self.now)

    def step(self, after: float = 0.0) -> str:
        self.look(after)
        return self.watch.next_step(self.now)


def report(slot: str, time_ms: int, source_next: int, source_end: int) -> SlotReport:
    position = Position(source_next, source_next, source_end)
    entry = PartitionPosition(TOPIC_ID, 0, TARGET_ID, position, 1, 0)
    return SlotReport(slot, 1, time_ms, (entry,))


def test_signs_sum_up_current_slots_and_leave_out_those_of_an_earlier_application() -> None:
    current, old = report("0", BEAT.time_ms - 900, 90, 100), report("9", 0, 0, 1_000_000)
    stopped = PartitionStatus(
        "T", 3, "stopped", "T-3: data loss", action="set data.loss.policy=continue"
    )
    copying = PartitionStatus("T", 4, "copying")

    signs = read_signs(
        FLOW,
        {
            DRIVER_KEY: BEAT.value(),
            **records_of(current),
            **records_of(old),
            **{entry.key(): entry.value() for entry in (stopped, copying)},
        },
    )

    assert (signs.slots, signs.partitions, signs.remaining) == (1, 1, 10)
    assert signs.stopped == (Reason("T-3: data loss", "set data.loss.policy=continue"),)
    assert signs.summary()["driver"] == "host/4711"
    assert signs_line(signs).endswith("10 offsets to copy, STOPPED: T-3: data loss")


def test_a_heartbeat_counts_only_once_it_has_changed() -> None:
    """The record of a dead driver stays in the topic, so its presence proves nothing."""
    topic = Topic(BEAT)
    watcher = Watcher(topic)

    assert watcher.look() == "starting"
    topic.beat(1)
    assert watcher.look() == "running"


def test_silence_of_a_readable_topic_means_lost() -> None:
    topic = Topic(BEAT)
    watcher = Watcher(topic)
    topic.beat(1)
    watcher.look()

    assert watcher.look(after=liveness_thresholds.LOST_S) == "running"
    assert watcher.look(after=1) == "lost"


def test_a_cluster_that_does_not_answer_is_no_proof_and_gives_the_driver_time_afterwards() -> None:
    """While the target is down the driver cannot write: restarting it would not help."""
    topic = Topic(BEAT)
    watcher = Watcher(topic)
    topic.beat(1)
    watcher.look()

    topic.failure = UnavailableError("cluster B does not answer")
    assert watcher.look(after=10 * liveness_thresholds.LOST_S) == "running"
    assert watcher.watch.signs == ()

    topic.failure = None
    assert watcher.look() == "running"
    assert watcher.look(after=liveness_thresholds.LOST_S + 1) == "lost"


def test_an_application_that_never_sends_a_heartbeat_is_lost_after_the_startup_time() -> None:
    watcher = Watcher(Topic())

    assert watcher.look() == "starting"
    assert watcher.look(after=liveness_thresholds.STARTUP_S + 1) == "lost"


def test_an_application_has_ended_when_one_of_its_drivers_says_so() -> None:
    first, second = Topic(BEAT), Topic(BEAT)
    watcher = Watcher(first, second)
    for topic in (first, second):
        topic.beat(1)
    assert watcher.look() == "running"

    second.beat(2, ended=True)

    assert watcher.look() == "ended"


def test_the_last_heartbeat_of_an_earlier_application_says_nothing_of_the_new_one() -> None:
    old = replace(BEAT, ended=True)

    assert Watcher(Topic(old)).look() == "starting"
    assert Watcher(Topic(old), driver=BEAT.driver).look() == "ended", "unless it is that one"


def test_a_flow_that_is_driven_is_supervised_and_not_started_again() -> None:
    topic = Topic(BEAT)
    watcher = Watcher(topic)

    assert watcher.step() == "look"
    topic.beat(1)
    assert watcher.step(after=1) == "supervise"


def test_a_flow_without_a_living_driver_is_started() -> None:
    assert Watcher(Topic()).step() == "start"
    assert Watcher(Topic(replace(BEAT, ended=True))).step() == "start"
    dead = Watcher(Topic(BEAT))
    assert dead.step() == "look"
    assert dead.step(after=liveness_thresholds.LOOK_S) == "start"


def test_an_application_is_only_supervised_where_it_drives_all_flows() -> None:
    alive = Topic(BEAT)
    watcher = Watcher(alive, Topic(BEAT))
    alive.beat(1, flows=("P->B",))

    assert watcher.step(after=1) == "look"
    assert watcher.step(after=liveness_thresholds.LOOK_S) == "start"


@pytest.mark.parametrize("failure", [UnavailableError, AuthorizationError])
def test_a_living_application_is_not_started_again_while_one_target_cannot_be_read(
    failure: type[SrmError],
) -> None:
    """Its heartbeat on the other target names the flow that cannot be read."""
    alive, away = Topic(BEAT), Topic()
    away.failure = failure("cluster P cannot be read")
    watcher = Watcher(alive, away)

    alive.beat(1)
    assert watcher.step(after=30) == "supervise", "a look at a dead cluster takes long"
    assert watcher.look() == "running"
    assert list(watcher.watch.errors) == [OTHER]

    away.failure, away.records = None, {DRIVER_KEY: replace(BEAT, ended=True).value()}
    alive.beat(2)
    assert watcher.step(after=1) == "supervise", "its driver there has only just begun"


def test_one_look_does_not_prove_that_nobody_drives_a_flow_however_long_it_takes() -> None:
    topics = {FLOW: Topic(BEAT)}
    watch = Watch.over(topics, 0.0)

    assert watch.after(look(topics), 30.0).next_step(30.0) == "look"


def test_nothing_is_started_while_no_flow_can_be_read() -> None:
    """An application may run, and a new one could not copy anything either."""
    away = Topic()
    away.failure = UnavailableError("cluster B does not answer")
    watcher = Watcher(away)

    assert watcher.step(after=10 * liveness_thresholds.LOST_S) == "look"
    away.failure = None
    assert watcher.step() == "start"


def test_a_flow_whose_driver_fails_is_no_reason_to_end_the_application_of_the_others() -> None:
    alive, failing = Topic(BEAT), Topic(replace(BEAT, driver="long-gone"))
    watcher = Watcher(alive, failing)

    alive.beat(1)
    watcher.look(after=1)
    alive.beat(2)
    assert watcher.look(after=liveness_thresholds.STARTUP_S + 1) == "running"

    alive.beat(3, flows=("P->B",))
    assert watcher.look() == "lost", "no living application has that flow any more"


def test_a_driver_that_was_asked_to_end_is_waited_for_and_then_replaced() -> None:
    """It would be taken for a replicator with the new settings otherwise."""
    topic = Topic(BEAT, RESTART)
    watcher = Watcher(topic)
    for second in range(1, round(liveness_thresholds.LOST_S)):
        topic.beat(second)
        assert watcher.step(after=1) == "look"

    topic.beat(liveness_thresholds.LOST_S, ended=True)
    assert watcher.step() == "start"

    deaf = Watcher(Topic(BEAT, RESTART))
    assert deaf.step(after=liveness_thresholds.LOOK_S) == "start", "it was dead when it was asked"


def test_after_a_stop_nothing_is_started_until_a_restart_or_a_start_by_hand() -> None:
    ended = Topic(replace(BEAT, ended=True), STOP)
    watcher = Watcher(ended)

    assert watcher.step() == "stay-stopped"
    assert watcher.watch.stopped_by == STOP
    ended.put(RESTART)
    assert watcher.step() == "start"

    by_hand = Topic(replace(BEAT, started_after=STOP.request), STOP)
    watcher = Watcher(by_hand)
    by_hand.beat(1, started_after=STOP.request)
    assert watcher.step() == "supervise"


class Site:
    """Flows whose drivers do something each time somebody waits."""

    def __init__(self, *topics: Topic) -> None:
        self.topics = dict(zip((FLOW, OTHER), topics, strict=False))
        self.now = 0.0
        self.then = lambda: None

    def ask(self, action: supervision.Action, wait_s: float = 60) -> list[str]:
        def pause(seconds: float) -> None:
            self.now += seconds
            self.then()

        answers = supervision.request_action(
            self.topics, action, "ada@ops", 7, wait_s, clock=lambda: self.now, pause=pause
        )
        return [answer.outcome for answer in answers]


def test_a_stop_is_answered_when_the_driver_says_that_it_has_ended() -> None:
    topic = Topic(BEAT)
    site = Site(topic)
    site.then = lambda: topic.beat(site.now, ended=site.now > 3)

    assert site.ask("stop") == ["ended"]
    assert 3 < site.now < 4


def test_a_restart_is_answered_by_a_driver_that_started_after_it() -> None:
    topic = Topic(BEAT)
    site = Site(topic)

    def restart() -> None:
        request = supervision.read_request(topic.read())
        assert request is not None
        if site.now > 5:
            topic.beat(site.now, driver="d2", started_after=request.request)
        else:
            topic.beat(site.now, ended=site.now > 2)

    site.then = restart

    assert site.ask("restart") == ["restarted"]
    assert site.now > 5


def test_an_application_ends_though_the_target_of_one_of_its_flows_does_not_answer() -> None:
    topic, away = Topic(BEAT), Topic(BEAT)
    site = Site(topic, away)
    away.failure = UnavailableError("cluster P does not answer")
    site.then = lambda: topic.beat(site.now, ended=site.now > 3)

    assert site.ask("stop") == ["ended", "ended"]

    topic.beat(5, ended=True, flows=("P->B",))
    site.then = lambda: None
    assert site.ask("stop", wait_s=5) == ["ended", "unreachable"], "another may drive that one"


def test_a_driver_that_does_not_end_is_reported_after_the_time_asked_for() -> None:
    topic = Topic(BEAT)
    site = Site(topic)
    site.then = lambda: topic.beat(site.now)

    assert site.ask("stop", wait_s=20) == ["asked"]
    assert 20 < site.now < 22


def test_a_stop_does_not_wait_for_the_dead_and_asks_nobody_where_none_ever_was() -> None:
    dead, never = Topic(BEAT), Topic()
    site = Site(dead, never)

    assert sorted(site.ask("stop")) == ["not-running", "not-running"]
    assert site.now > liveness_thresholds.SILENT_S, "a driver may be slow to beat"
    assert never.records == {}
    assert REQUEST_KEY in dead.read(), "one that starts just now is meant, too"


def test_a_target_that_answers_late_delays_no_request_to_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    late, well = Topic(BEAT), Topic(BEAT)
    asked = threading.Event()

    def answer_late(records: object) -> None:
        del records
        assert asked.wait(DEADLINE_S), "the other is asked first"
        raise UnavailableError("B does not answer")

    def note(records: object) -> None:
        del records
        asked.set()

    monkeypatch.setattr(late, "write", answer_late)
    monkeypatch.setattr(well, "write", note)
    with pytest.raises(UnavailableError, match="B does not answer"):
        supervision.request_end({FLOW: late, OTHER: well}, "stop", "ada", 7)
