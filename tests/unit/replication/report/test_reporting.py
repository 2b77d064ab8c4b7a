"""What a slot writes, in which order, and what waits for what."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.mm2 import decode_sync
from tests.seconds import Seconds, own_seconds
from tests.unit.replication.copy.reporters import (
    ASSIGNED,
    MAP,
    ME,
    STATE,
    SYNCS,
    copied,
    copying,
    reporter_to,
    told,
    written,
)

from srm.domain.flow_state.replication_records import PartitionNotes, PartitionStatus
from srm.domain.flow_state.replication_state import decode_state
from srm.domain.flow_state.slot_records import GROUP_SIZE
from srm.domain.names import internal_topics
from srm.domain.offset_map.map_records import BlockKey, map_partition
from srm.domain.offset_map.offset_map import Run
from srm.errors import AuthorizationError, UnavailableError
from srm.replication.claim import Claim
from srm.replication.mapping import map_writer
from srm.replication.mapping.starts import Start
from srm.replication.partition import PartitionCopy, Phase, Stop
from srm.replication.ports import ProducerId
from srm.replication.report import Reporter
from srm.replication.resume.resume import Resumed, Walked
from srm_lab.testing.fake_compacted import FakeStateLog
from srm_lab.testing.flows import flow_config


@pytest.fixture
def seconds() -> Iterator[Seconds]:
    with own_seconds() as time:
        yield time


def test_blocks_are_acknowledged_before_the_position_is_written() -> None:
    log = FakeStateLog()
    copy = copying()
    log.unreachable = {MAP}
    reporter = reporter_to(log)

    reporter.prepare([copy])()
    assert told(log) == {}

    log.unreachable = set()
    reporter.prepare([copy])()
    assert told(log) == {(ASSIGNED.topic_id, 0): 10}
    blocks = [n for n, place in enumerate(written(log)) if place == MAP]
    positions = [n for n, r in enumerate(log.records) if r.key == b"slot:0:2-me:0"]
    assert max(blocks) < min(positions)


def test_a_block_that_was_refused_is_written_again_before_the_next_report() -> None:
    log = FakeStateLog()
    reporter = reporter_to(log)
    copy = copying()
    log.refused = {MAP: UnavailableError("not enough replicas")}
    reporter.prepare([copy])()
    assert told(log) == {}

    log.refused = {}
    reporter.prepare([copy])()

    assert len(log.table(MAP)) == 1
    assert told(log) == {(ASSIGNED.topic_id, 0): 10}


def test_one_map_partition_that_cannot_be_written_stops_no_other_ones_positions() -> None:
    log = FakeStateLog()
    reporter = reporter_to(log)
    copies = [copying(number) for number in range(16)]
    late = {n for n in range(16) if map_partition("T", n) == MAP[1]}
    assert 0 < len(late) < 16
    log.unreachable = {MAP}

    reporter.prepare(copies)()

    assert {number for _, number in told(log)} == set(range(16)) - late


def test_a_damaged_block_is_deleted_only_when_what_it_held_is_acknowledged() -> None:
    log = FakeStateLog()
    reporter = reporter_to(log)
    damaged = BlockKey(ASSIGNED.topic_id, 0, 1, (7, 0))
    copy = PartitionCopy(ASSIGNED, Start(0, 0, garbage=(damaged,)))
    copy.map.begin_claim(ProducerId(7, 1))
    copy.map.add([Run(0, 1, 10)])
    log.refused = {MAP: UnavailableError("not enough replicas")}
    reporter.prepare([copy])()
    assert written(log).count(MAP) == 0

    log.refused = {}
    reporter.prepare([copy])()
    assert told(log) == {(ASSIGNED.topic_id, 0): 0}
    reporter.prepare([copy])()

    assert [r.value is None for r in log.records if r.place == MAP] == [False, True]


def test_state_topics_that_are_away_for_ten_minutes_cost_no_more_memory_than_in_five(
    seconds: Seconds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten transactions a second in each of 3 partitions, and neither map nor reports answer."""
    monkeypatch.setattr(map_writer, "MOST_BLOCKS", 5)
    log = FakeStateLog()
    reporter = reporter_to(log)
    copies = [copying(number) for number in range(3)]
    log.unreachable = {(MAP[0], n) for n in range(8)} | {STATE}
    sizes: list[tuple[int, int]] = []
    for second in range(600):
        seconds.now += 1
        for copy in copies:
            copy.hold_back(held=reporter.is_full(copy))
            for _ in range(0 if copy.held_back else 10):
                copied(copy, copy.source_next + 1, 5)
        reporter.beat(1, len(copies), 0.0, 0)
        if second % 100 == 0:
            reporter.note_anomaly(copies[0], f"something at {second}")
        reporter.prepare(copies)()
        if second in (300, 599):
            sizes.append(
                (len(log._on_their_way), sum(w.waiting for w in reporter._map._writers.values()))
            )

    assert sizes[0] == sizes[1]
    assert sizes[0][0] < 200
    assert 0 < sizes[0][1] <= 3 * 7
    assert all(copy.held_back for copy in copies)

    log.unreachable = set()
    for _ in range(2):
        seconds.now += 1
        reporter.prepare(copies)()
    assert told(log) == {(c.assigned.topic_id, c.source.partition): c.source_next for c in copies}
    assert not any(reporter.is_full(copy) for copy in copies)


def test_a_partition_whose_map_cannot_be_written_waits_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(map_writer, "MOST_BLOCKS", 1)
    log = FakeStateLog()
    reporter = reporter_to(log)
    copy = copying()
    log.unreachable = {MAP}
    for at in range(20, 4000, 2):
        copied(copy, at, 1)
    reporter.prepare([copy])()

    assert reporter.is_full(copy)
    copy.hold_back(held=True)
    assert not copy.wants_data
    reporter.prepare([copy])()
    [status] = decode_state(log.table(STATE)).statuses
    assert (status.state, MAP[0] in status.reason) == ("stopped", True)


def test_offset_syncs_go_to_the_target_once_the_source_refuses_them() -> None:
    state, syncs = FakeStateLog(), FakeStateLog()
    reporter = reporter_to(state, syncs)
    copy = copying()
    copy.sync_marks.last_copied = (9, 9)
    reporter.prepare([copy])()
    assert written(syncs) == [SYNCS]

    syncs.refused = {SYNCS: AuthorizationError("refused")}
    copy.sync_marks.last_copied = (10, 10)
    for _ in range(3):
        reporter.prepare([copy])()

    there = state.table((internal_topics.offset_syncs("P"), 0))
    assert [decode_sync(*row).upstream_offset for row in there.items()] == [10]


def test_an_offset_sync_that_was_lost_is_written_again_though_nothing_is_copied_since() -> None:
    state, syncs = FakeStateLog(), FakeStateLog()
    reporter = reporter_to(state, syncs)
    copy = copying()
    copy.sync_marks.last_copied = (9, 9)
    syncs.refused = {SYNCS: UnavailableError("timed out")}
    reporter.prepare([copy])()
    syncs.refused = {}

    for _ in range(2):
        reporter.prepare([copy])()

    assert written(syncs) == [SYNCS]


def test_the_last_report_waits_for_the_offset_syncs_too() -> None:
    flushed: list[str] = []

    class Waiting(FakeStateLog):
        def flush(self, timeout_s: float) -> None:
            flushed.append("syncs" if self is syncs else "state")
            super().flush(timeout_s)

    state, syncs = Waiting(), Waiting()
    reporter_to(state, syncs).report([copying()])

    assert sorted(flushed) == ["state", "syncs"]


def test_a_loss_is_told_before_the_position_passes_it_and_until_it_is_acknowledged() -> None:
    log = FakeStateLog()
    reporter = reporter_to(log)
    copy = copying()
    reporter.lost(copy, 3, 7, "retention passed them")
    log.refused = {STATE: UnavailableError("no leader")}
    reporter.prepare([copy])()
    log.refused = {}

    reporter.prepare([copy])()
    reporter.prepare([copy])()

    keys = [r.key for r in log.records if r.key.startswith((b"notes:", b"slot:"))]
    assert keys == [b"notes:0:T-0", b"slot:0:2-me:0"]


def test_what_is_noted_of_a_partition_that_leaves_is_told_all_the_same() -> None:
    log = FakeStateLog()
    reporter = reporter_to(log)
    copy = copying()
    reporter.note_anomaly(copy, "foreign records")

    reporter.prepare([], [copy])()

    assert b"notes:0:T-0" in log.table(STATE)


def test_a_slot_continues_its_predecessors_notes_unless_the_topic_is_another() -> None:
    first = PartitionNotes("0", "T", 0, ASSIGNED.topic_id).with_loss(0, 5, "too old", 0)
    for former, lost in ((first, 6), (replace(first, topic_id="C" * 22), 1)):
        log = FakeStateLog()
        reporter = Reporter(flow_config(), "0", log, FakeStateLog(), lambda: 0)
        reporter.begin(ME, [former])
        reporter.lost(copying(), 7, 8, "too large")
        reporter.prepare([copying()])()

        assert PartitionNotes.decode(log.table(STATE)[b"notes:0:T-0"]).lost == lost


def test_only_groups_that_have_changed_are_written_and_all_of_them_from_time_to_time(
    seconds: Seconds,
) -> None:
    log = FakeStateLog()
    reporter = reporter_to(log)
    copies = [copying(number) for number in range(2 * GROUP_SIZE + 1)]
    reporter.prepare(copies)()
    groups = {f"slot:0:2-me:{n}".encode() for n in range(3)}

    def keys_after(pause_s: float) -> set[bytes]:
        seconds.now += pause_s
        before = len(log.records)
        reporter.prepare(copies)()
        return {r.key for r in log.records[before:] if r.place == STATE}

    assert groups <= log.table(STATE).keys()
    assert keys_after(1) == set()
    copied(copies[0], 20, 5)
    assert keys_after(1) == {b"slot:0:2-me:0"}
    assert keys_after(30) == groups


def test_a_partition_that_leaves_is_told_of_elsewhere_before_its_group_forgets_it() -> None:
    log = FakeStateLog()
    reporter = reporter_to(log)
    copies = [copying(number) for number in range(3)]
    reporter.prepare(copies)()
    copied(copies[1], 20, 5)
    log.refused = {STATE: UnavailableError("no leader")}
    reporter.prepare([copies[0], copies[2]], [copies[1]])()
    assert told(log)[ASSIGNED.topic_id, 1] == 10
    log.refused = {}

    before = len(log.records)
    reporter.prepare([copies[0], copies[2]])()

    assert told(log)[ASSIGNED.topic_id, 1] == 25
    keys = [r.key for r in log.records[before:] if r.key.startswith(b"slot:")]
    assert keys[0].startswith(b"slot:0:2-me:left-")
    assert keys[1:] == [b"slot:0:2-me:0"]


def test_the_last_position_of_a_partition_waits_for_its_blocks() -> None:
    log = FakeStateLog()
    reporter = reporter_to(log)
    copy = copying()
    reporter.prepare([copy])()
    copied(copy, 20, 5)
    log.unreachable = {MAP}
    reporter.prepare([], [copy])()
    assert told(log) == {(ASSIGNED.topic_id, 0): 10}

    log.unreachable = set()
    reporter.prepare([])()

    assert told(log) == {(ASSIGNED.topic_id, 0): 25}


def test_a_partition_that_comes_back_tells_its_status_again() -> None:
    """Another slot may have told another one meanwhile."""
    log = FakeStateLog()
    reporter = reporter_to(log)
    reporter.prepare([copying()])()
    reporter.prepare([], [copying()])()
    before = len(log.records)

    reporter.prepare([copying()])()

    told = [r.value or b"" for r in log.records[before:] if r.key == b"status:T-0"]
    assert [PartitionStatus.decode(value).state for value in told] == ["copying"]


def test_statuses_are_told_again_as_a_process_that_woke_up_may_have_told_others(
    seconds: Seconds,
) -> None:
    log = FakeStateLog()
    reporter = reporter_to(log)
    resting, busy = copying(0), copying(1)
    resting.rest(Phase.STOPPED, Stop("the target refused it"))

    def told() -> list[bytes]:
        before = len(log.records)
        reporter.prepare([resting, busy])()
        return [r.key for r in log.records[before:] if r.key.startswith(b"status:")]

    assert told() == [b"status:T-0", b"status:T-1"]
    assert told() == []
    seconds.now += 31
    assert told() == [b"status:T-0"]
    reporter.report_everything()
    assert told() == [b"status:T-0", b"status:T-1"]
    assert told() == []


def test_what_to_do_about_a_partition_at_rest_is_a_value_in_its_record_until_it_goes_on() -> None:
    log = FakeStateLog()
    reporter = reporter_to(log)
    copy = copying(0)

    def told() -> PartitionStatus:
        before = len(log.records)
        reporter.prepare([copy])()
        [value] = [r.value or b"" for r in log.records[before:] if r.key == b"status:T-0"]
        return PartitionStatus.decode(value)

    copy.rest(Phase.STOPPED, Stop("no right; grant Read", action="grant Read"))
    stopped = told()
    copy.note_walk(Claim(ProducerId(7, 1), float("inf")), Walked(1, 9, None))

    assert (stopped.reason, stopped.action) == ("no right; grant Read", "grant Read")
    going_on = told()
    assert (going_on.reason, going_on.action) == ("walking the logs: target offset 1 of 9", "")


def test_heartbeats_do_not_pile_up_while_nobody_could_read_them() -> None:
    log = FakeStateLog()
    reporter = reporter_to(log)
    log.unreachable = {STATE}

    for _ in range(1000):
        reporter.beat(1, 2, 0.0, 0)

    assert log.waiting(STATE) <= 100


def test_a_slot_without_partitions_sends_heartbeats_again_once_its_target_is_back() -> None:
    log = FakeStateLog()
    reporter = reporter_to(log)
    log.unreachable = {STATE}
    for _ in range(150):
        reporter.beat(1, 0, 0.0, 0)
        reporter.prepare([])()
    log.unreachable = set()

    reporter.prepare([])()
    reporter.beat(2, 0, 0.0, 0)

    assert [report.generation for report in decode_state(log.table(STATE)).reports] == [2]


def test_nothing_is_fetched_after_a_cut_until_a_report_under_the_new_claim_tells_of_it() -> None:
    """What took the places of lost records was translated as those, up to the next report."""
    state = FakeStateLog()
    reporter, copy = reporter_to(state), copying()
    reporter.report([copy])
    copy.cut_at(5)
    reporter.report([copy])
    assert not reporter.has_reported_position(copy)  # under the former claim, which has told more

    copy.begin_copying(Claim(ProducerId(7, 2), 1e9), Resumed(5, 11))
    assert not copy.wants_data
    state.refused = {STATE: UnavailableError("no leader")}
    reporter.report([copy])
    assert not reporter.has_reported_position(copy)
    state.refused = {}
    reporter.report([copy])

    assert reporter.has_reported_position(copy)
    copy.note_position_reported()
    copy.hold_back(held=False)
    assert copy.wants_data


def test_a_record_is_skipped_once_a_report_that_begins_after_the_refusal_is_acknowledged() -> None:
    state = FakeStateLog()
    reporter, copy = reporter_to(state), copying()
    copy.cut_at(5)
    copy.begin_copying(Claim(ProducerId(7, 2), 1e9), Resumed(5, 11))
    reporter.report([copy])
    assert reporter.has_reported_position(copy)
    copy.note_position_reported()

    begun = reporter.prepare([copy])
    reporter.lost(copy, 5, 6, "the target refused it")
    copy.skip_to(6)
    state.refused = {STATE: UnavailableError("no leader")}
    begun()
    assert not reporter.has_reported_position(copy), "the last one that was acknowledged is older"
    state.refused = {}
    reporter.report([copy])

    assert reporter.has_reported_position(copy)
    assert copy.position().position.source_next == 6


def test_a_target_that_is_dead_for_long_has_one_line_and_one_when_it_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = FakeStateLog()
    reporter, copies = reporter_to(log), [copying()]
    log.refused = {MAP: UnavailableError("not enough replicas")}
    log.unreachable = {STATE}
    for _ in range(3):
        reporter.beat(1, 1, 0.0, 0)
        reporter.note_anomaly(copies[0], "something")
        reporter.prepare(copies)()
    log.refused, log.unreachable = {}, set()
    for _ in range(2):
        reporter.prepare(copies)()

    lines = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert lines == [
        "slot 0: offset map fails and is tried again: not enough replicas",
        "slot 0: report fails and is tried again: __srm-replication.P-1: not acknowledged in time",
        "slot 0: offset map works again",
        "slot 0: report works again",
    ]
