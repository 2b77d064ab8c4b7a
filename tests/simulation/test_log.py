"""The simulated log keeps the rules of Kafka's that claims and resume rest on."""

from __future__ import annotations

import struct
from dataclasses import replace

from tests.batches import Record, encode

from srm.domain.names.topics import TopicPartition
from srm.replication.batches.batch import rewrite, seal
from srm.replication.ports import EpochEnd
from srm_lab.testing.simulation import checker
from srm_lab.testing.simulation.batches import foreign_batch
from srm_lab.testing.simulation.checker import _says_others
from srm_lab.testing.simulation.log import (
    INVALID_PRODUCER_EPOCH,
    NONE,
    OUT_OF_ORDER,
    SimulatedLog,
)
from srm_lab.testing.simulation.loop import simulated_loop
from srm_lab.testing.simulation.run import silent
from srm_lab.testing.simulation.scenario import SimulatedScenario
from srm_lab.testing.simulation.threads import simulated_threads
from srm_lab.testing.simulation.world import SimulatedWorld


def _log(expiry_s: float = 86_400.0) -> SimulatedLog:
    log = SimulatedLog(log_append_time=False, max_message_bytes=1 << 20, expiry_s=expiry_s)
    log.begin_epoch(0)
    return log


def _batch(
    count: int, pid: int = -1, epoch: int = -1, sequence: int = -1, *, transactional: bool = False
) -> bytes:
    view = encode([Record(n, 1000 + n, b"k%d" % n, b"v") for n in range(count)])
    rewrite(view, pid, epoch, sequence)
    data = bytearray(view)
    if transactional:
        struct.pack_into(">h", data, 21, 0x10)
        seal(memoryview(data))
    return bytes(data)


def _append(log: SimulatedLog, data: bytes, now_s: float = 0.0) -> tuple[int, int]:
    produced = log.append(data, now_s, 0)
    log.high_watermark = log.end
    return produced.error, produced.base_offset


def test_a_marker_shuts_out_older_epochs_and_demands_sequence_zero() -> None:
    log = _log()
    assert _append(log, _batch(2, 9, 0, 0)) == (NONE, 0)
    assert log.append_marker(9, 1, 0.0, 0, commit=False)

    assert _append(log, _batch(1, 9, 0, 2)) == (INVALID_PRODUCER_EPOCH, -1)
    assert _append(log, _batch(1, 9, 1, 2)) == (OUT_OF_ORDER, -1)
    assert _append(log, _batch(1, 9, 1, 0)) == (NONE, 3)
    assert not log.append_marker(9, 0, 0.0, 0, commit=False)


def test_a_producer_that_is_forgotten_may_come_with_any_sequence_and_epoch() -> None:
    log = _log(expiry_s=60.0)
    _append(log, _batch(2, 9, 1, 0))

    assert _append(log, _batch(1, 9, 0, 7), now_s=59.0) == (INVALID_PRODUCER_EPOCH, -1)
    assert _append(log, _batch(1, 9, 0, 7), now_s=61.0) == (NONE, 2)


def test_a_truncated_log_has_forgotten_what_the_lost_batches_told_of_producers() -> None:
    log = _log()
    _append(log, _batch(2, 9, 0, 0))
    log.append_marker(9, 1, 0.0, 0, commit=False)
    log.truncate(2, 0.0)
    log.begin_epoch(1)

    assert _append(log, _batch(1, 9, 0, 2)) == (NONE, 2)
    ends = [EpochEnd(0, 2), EpochEnd(1, 3), EpochEnd(-1, -1)]
    assert [log.epoch_end(epoch) for epoch in range(3)] == ends


def test_of_an_epoch_that_was_lost_the_log_tells_the_end_of_the_one_before_it() -> None:
    log = _log()
    _append(log, _batch(2))
    log.begin_epoch(1)
    _append(log, _batch(2))
    log.truncate(2, 0.0)
    log.begin_epoch(2)

    assert log.epoch_end(1) == EpochEnd(0, 2)


def test_an_open_transaction_holds_the_stable_offset_back_until_its_marker_is_committed() -> None:
    log = _log()
    _append(log, _batch(1))
    _append(log, _batch(2, 9, 0, 0, transactional=True))
    _append(log, _batch(1))
    assert log.last_stable_offset == 1

    log.append_marker(9, 0, 0.0, 0, commit=False)
    assert log.last_stable_offset == 1, "the marker is not committed yet"
    log.high_watermark = log.end
    assert log.last_stable_offset == 5
    assert log.aborted_between(0, 5) == ((9, 1),)


def test_compaction_leaves_the_last_record_of_each_key_at_its_offset() -> None:
    log = _log()
    _append(log, _batch(3))
    _append(log, _batch(2))
    _append(log, _batch(1))
    log.compact(5, 0.0)

    left = [record.offset for batch in log.batches for record in batch.records()]
    assert left == [2, 3, 4, 5]
    assert set(log.compacted) == {0, 1}


def test_a_trimmed_log_begins_later_and_knows_its_producers_still() -> None:
    log = _log()
    _append(log, _batch(2, 9, 1, 0))
    _append(log, _batch(1))
    log.trim(2, 0.0)

    assert (log.start, [batch.base for batch in log.batches]) == (2, [2])
    assert _append(log, _batch(1, 9, 0, 0)) == (INVALID_PRODUCER_EPOCH, -1)


def test_a_trimmed_log_knows_no_leader_epoch_that_ended_before_its_start() -> None:
    """As in Kafka's LeaderEpochFileCache; the end of such an epoch is then the log's start."""
    log = _log()
    _append(log, _batch(2))
    log.begin_epoch(1)
    _append(log, _batch(2))
    log.begin_epoch(2)
    _append(log, _batch(2))
    log.trim(3, 0.0)

    assert log.epochs == [(1, 3), (2, 4)]
    assert [log.epoch_end(e) for e in range(2)] == [EpochEnd(0, 3), EpochEnd(1, 4)]


def test_a_lost_marker_is_the_first_that_followed_its_transaction() -> None:
    """Another transaction of the producer ended after the same offset, in the log of before."""
    log = _log()
    _append(log, _batch(1, 9, 0, 0, transactional=True))
    _append(log, _batch(3), now_s=1.0)
    log.append_marker(9, 0, 2.0, 0, commit=False)
    log.truncate(0, 3.0)
    log.begin_epoch(1)
    _append(log, _batch(1, 9, 0, 0, transactional=True), now_s=3.0)
    assert log.lost_markers() == []

    _append(log, _batch(5), now_s=4.0)
    log.append_marker(9, 0, 5.0, 0, commit=True)
    log.truncate(1, 6.0)

    [(producer, marker)] = log.lost_markers()
    assert (producer, marker.is_commit) == (9, True)


def test_a_former_replica_that_holds_less_takes_the_end_of_the_log_away() -> None:
    log = _log()
    _append(log, _batch(2))
    fork = log.fork()
    _append(log, _batch(1, 9, 0, 0, transactional=True))
    log.append_marker(9, 0, 0.0, 0, commit=False)
    log.rejoin(fork, 1.0)

    assert (log.end, len(log.cut), log.aborted) == (2, 2, [])


def test_a_world_does_not_end_before_the_marker_of_an_abandoned_transaction() -> None:
    """A translation past the marker needs a slot that has noticed it."""
    scenario = replace(SimulatedScenario.drawn(0, "ordinary"), faults=[], clean_end=False)
    with simulated_loop(0) as loop, simulated_threads(loop):
        world = SimulatedWorld.made(scenario, loop, silent)
        [assigned, *_] = world.assignments()
        place = TopicPartition(assigned.target_topic, assigned.partition)
        _, producer = world.coordinator.init_producer_id("abandoned")
        world.coordinator.add_partition("abandoned", producer, place)
        loop.run_until_complete(loop.world_task(world.live()))

        log = world.target.topics[place.topic].partitions[place.partition].log
        assert producer.id in {batch.producer_id for batch in log.history if batch.is_control}
        assert checker.check(world) == []


def test_a_stop_for_records_of_others_is_excused_only_where_it_names_them() -> None:
    scenario = replace(SimulatedScenario.drawn(0, "ordinary"), faults=[])
    with simulated_loop(0) as loop, simulated_threads(loop):
        world = SimulatedWorld.made(scenario, loop, silent)
        [target, *_] = world.target.partitions()
        target.log.append(foreign_batch(0), 0.0, 0)

        stop = "holds records that srm did not copy, at target offsets 0 to {};"
        assert _says_others(world, target, stop.format(0))
        assert not _says_others(world, target, stop.format(1))

        world.coordinator.claimed.add(9)
        _append(target.log, _batch(1, 9, 0, 0))
        assert not _says_others(world, target, stop.format(0))
