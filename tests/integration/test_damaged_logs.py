"""Logs that lost a part on real brokers; the simulation plays many more such losses."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.conftest import BrokerFactory
from tests.faults.campaign.truncation import cut
from tests.integration.copying import CopyLab, delete_before
from tests.waiting import eventually

from srm.domain.flow_state.replication_records import AssignedPartition, PartitionNotes
from srm.domain.names.topics import TopicPartition
from srm.domain.offset_map.runs import both_ends
from srm.errors import SrmError
from srm_lab.stack.kafka import KafkaBroker
from srm_lab.testing.logs import read_log

pytestmark = [pytest.mark.kafka, pytest.mark.integration, pytest.mark.timeout(600)]

RECORDS = 10


def _send(lab: CopyLab, p: AssignedPartition, *values: bytes) -> None:
    producer = lab.producer(**{"linger.ms": 200})
    for value in values:
        producer.produce(p.topic, value, partition=p.partition)
    assert producer.flush(120) == 0


def _random(count: int) -> list[bytes]:
    return [os.urandom(100) for _ in range(count)]


def _mapped(lab: CopyLab, p: AssignedPartition) -> dict[int, int]:
    runs = lab.offset_map(p).runs
    return {run.source_start + i: run.target_start + i for run in runs for i in range(run.count)}


# ----- a target that lost the end of its log gets it again


def _copy_one_by_one(lab: CopyLab, p: AssignedPartition) -> None:
    """Make one batch of each record, so that the log can be cut between any two."""
    for number in range(RECORDS):
        _send(lab, p, b"record %d" % number)
        lab.wait_until_copied([p])


def _lose(
    lab: CopyLab, target: KafkaBroker, p: AssignedPartition, records: int, *, state: bool = True
) -> str:
    """Cut the last records off the target's log, with what the broker knows of producers.

    Returns:
        What the status of the partition says of it.
    """
    place = TopicPartition(p.target_topic, 0)
    batches = lab.target.high_watermarks([place])[place]  # with the markers of claims
    end = cut(target, p.target_topic, 0, share=(batches - records + 0.5) / batches)
    assert end == batches - records
    if not state:
        for snapshot in (target.home / "data" / f"{p.target_topic}-0").glob("*.snapshot"):
            snapshot.unlink()
    target.start()
    target.wait_ready()
    return f"offsets {both_ends(end, batches)} are gone"


def _says(lab: CopyLab, p: AssignedPartition, loss: str) -> bool:
    status = lab.status(p)
    return status is not None and loss in status.reason


def _is_equal(lab: CopyLab, p: AssignedPartition) -> bool:
    """Whether copy and map are right; the report from before the loss says so too early."""
    try:
        lab.assert_equal([p])
    except (AssertionError, SrmError):
        return False
    return True


@pytest.mark.parametrize(("lost", "producer_state"), [(5, True), (2, False)])
def test_a_target_that_lost_its_end_gets_it_again(
    clusters: Mapping[str, KafkaBroker],
    broker_factory: BrokerFactory,
    lost: int,
    producer_state: bool,
) -> None:
    target = broker_factory("B")
    lab = CopyLab(clusters["P"].bootstrap, target.bootstrap)
    [p] = lab.topic()
    lab.assign("0", [p])
    with lab.running():
        _copy_one_by_one(lab, p)
    loss = _lose(lab, target, p, lost, state=producer_state)

    with lab.running():
        eventually(lambda: _says(lab, p, loss), "it is reported though nothing new is to be copied")
        _send(lab, p, b"one more")
        eventually(lambda: _is_equal(lab, p), "what was lost is there again, and in the map")

    assert _says(lab, p, loss)


# ----- a source that lost the end of its log: seen even where it has grown past the position since


def _abort(lab: CopyLab, p: AssignedPartition, offset: int) -> None:
    producer = lab.producer(**{"transactional.id": p.topic})
    producer.init_transactions(120)
    producer.begin_transaction()
    producer.produce(p.topic, b"aborted", partition=p.partition)
    producer.flush(120)
    producer.abort_transaction(120)
    place = TopicPartition(p.topic, p.partition)
    eventually(lambda: lab.source.log_ends([place])[place] == offset + 2, "its marker is written")


@pytest.mark.parametrize(
    ("grown_by", "policy", "reports"),
    [(None, "stop", "kept"), (10, "continue", "kept"), (50, "continue", "lost")],
)
def test_a_truncated_source_is_seen_and_the_map_continues_exactly(
    clusters: Mapping[str, KafkaBroker],
    broker_factory: BrokerFactory,
    grown_by: int | None,
    policy: str,
    reports: str,
) -> None:
    """None: it has grown to the very offset where it had ended."""
    source = broker_factory("P")
    lab = CopyLab(source.bootstrap, clusters["B"].bootstrap, data_loss_policy=policy)
    [p] = lab.topic()
    lab.assign("0", [p])
    with lab.running():
        for _ in range(3):
            _send(lab, p, *_random(20))
            lab.wait_until_copied([p])
        _abort(lab, p, 60)  # the run ends here, and its block is written once more
        lab.wait_until_copied([p])
    if reports == "lost":
        lab.forget_reports()
    end = cut(source, p.topic, 0, share=0.5, lowest=20)  # however the sends were batched
    assert end in range(20, 60), "within what was copied"
    before = read_log(lab.target_props, p.target_topic, 0)
    source.start()
    source.wait_ready()
    grown_by = 62 - end if grown_by is None else grown_by
    _send(lab, p, *_random(grown_by))
    lost = (end, 62 if reports == "kept" else 60)

    with lab.running():
        if policy == "stop":
            status = lab.stopped(p)
            assert (status.lost_from, status.lost_to) == lost
            assert "truncated" in status.reason
            return
        eventually(
            lambda: (s := lab.status(p)) is not None and (s.lost_from, s.lost_to) == lost,
            "the lost range is reported",
        )
        _send(lab, p, *_random(10))
        lab.wait_until_copied([p])
        eventually(
            lambda: len(_mapped(lab, p)) == end + grown_by + 10,
            "all is copied that the source has now",
        )

    copied = dict(read_log(lab.target_props, p.target_topic, 0))
    assert all(copied[offset] == record for offset, record in before)
    pairs = _mapped(lab, p).items()
    assert {s: copied[t] for s, t in pairs} == dict(read_log(source.bootstrap, p.topic, 0))


# ----- a source whose log has another lineage than the one that was read


def _restart(broker: KafkaBroker, times: int = 1) -> None:
    """Start a broker that is down; each start elects it under a later leader epoch."""
    for _ in range(times - 1):
        broker.start()
        broker.wait_ready()
        broker.stop()
    broker.start()
    broker.wait_ready()


@pytest.mark.parametrize("policy", ["stop", "continue"])
def test_a_source_restored_from_a_snapshot_that_has_grown_past_the_position_diverges_there(
    clusters: Mapping[str, KafkaBroker], broker_factory: BrokerFactory, tmp_path: Path, policy: str
) -> None:
    """It has used its leader epochs again: the latest one begins earlier than the one copied."""
    source = broker_factory("P")
    lab = CopyLab(source.bootstrap, clusters["B"].bootstrap, data_loss_policy=policy)
    [p] = lab.topic()
    lab.assign("0", [p])
    data, snapshot = source.home / "data", tmp_path / "snapshot"
    with lab.running():
        _send(lab, p, *_random(20))
        lab.wait_until_copied([p])
    source.stop()
    shutil.copytree(data, snapshot)
    for _ in range(2):
        _restart(source)
        with lab.running():
            _send(lab, p, *_random(10))
            lab.wait_until_copied([p])
        source.stop()
    shutil.rmtree(data)
    shutil.copytree(snapshot, data)
    _restart(source, times=2)
    _send(lab, p, *_random(50))

    with lab.running():
        if policy == "stop":
            status = lab.stopped(p)
            assert (status.lost_from, status.lost_to) == (20, 40)
            return
        _send(lab, p, *_random(10))
        eventually(lambda: len(_mapped(lab, p)) == 80, "all is copied that the source has now")

    copied = dict(read_log(lab.target_props, p.target_topic, 0))
    pairs = _mapped(lab, p).items()
    assert {s: copied[t] for s, t in pairs} == dict(read_log(source.bootstrap, p.topic, 0))


def test_a_source_truncated_twice_is_copied_from_the_lower_place_on(
    clusters: Mapping[str, KafkaBroker], broker_factory: BrokerFactory
) -> None:
    """Nothing of the epochs in which it was copied last, and between, is left."""
    source = broker_factory("P")
    lab = CopyLab(source.bootstrap, clusters["B"].bootstrap, data_loss_policy="continue")
    [p] = lab.topic()
    lab.assign("0", [p])
    with lab.running():
        for _ in range(3):
            _send(lab, p, *_random(20))
            lab.wait_until_copied([p])
            source.restart()
    assert cut(source, p.topic, 0, share=0.5, lowest=40) == 40
    _restart(source)
    _send(lab, p, *_random(5))
    end = cut(source, p.topic, 0, share=0.5, lowest=20)
    assert end in range(20, 41), "within what was copied under an earlier epoch"
    _restart(source)
    _send(lab, p, *_random(50))

    with lab.running():
        eventually(
            lambda: (s := lab.status(p)) is not None and (s.lost_from, s.lost_to) == (end, 60),
            "the lost range is reported",
        )
        eventually(
            lambda: len(_mapped(lab, p)) == end + 50, "all is copied that the source has now"
        )

    copied = dict(read_log(lab.target_props, p.target_topic, 0))
    pairs = _mapped(lab, p).items()
    assert {s: copied[t] for s, t in pairs} == dict(read_log(source.bootstrap, p.topic, 0))


# ----- all state is lost, and retention has shortened one of the logs


@pytest.mark.parametrize(
    ("trimmed", "configs", "payload"),
    [("source", {}, 40_000), ("target", {"message.timestamp.type": "LogAppendTime"}, 10)],
    ids=["source, by more than the walk looks ahead", "target, with times of its own"],
)
def test_logs_that_begin_apart_are_resumed_without_map_and_reports(
    clusters: Mapping[str, KafkaBroker], trimmed: str, configs: Mapping[str, str], payload: int
) -> None:
    lab = CopyLab(clusters["P"].bootstrap, clusters["B"].bootstrap)
    [p] = lab.topic(configs=configs)
    lab.assign("0", [p])
    values = [b"%d " % number + b"x" * payload for number in range(2010)]
    with lab.running():
        _send(lab, p, *values[:2000])
        lab.wait_until_copied([p])
    markers = lab.offset_map(p).forward(0).offset  # of a claim, or more
    lab.forget_state()
    if trimmed == "target":
        delete_before(lab.target_props, p.target_topic, 1900 + markers)
    else:
        delete_before(lab.source_props, p.topic, 1900)

    with lab.running():
        _send(lab, p, *values[2000:])
        lab.wait_until_copied([p])

    copied = read_log(lab.target_props, p.target_topic, 0)
    where = {int((record.value or b"").split()[0]): offset for offset, record in copied}
    assert len(where) == len(copied), "nothing is copied twice"
    assert list(where) == list(range(1900 if trimmed == "target" else 0, 2010))
    assert _mapped(lab, p) == {number: where[number] for number in range(1900, 2010)}


# ----- a source that lost its end gives the offsets of a decision to other records


def test_records_at_offsets_that_were_discarded_are_copied_when_they_are_others(
    broker_factory: BrokerFactory,
) -> None:
    source, target = broker_factory("P"), broker_factory("B")
    lab = CopyLab(source.bootstrap, target.bootstrap, data_loss_policy="continue")
    [p] = lab.topic()
    for _ in range(6):
        _send(lab, p, *_random(10))
    _discard(lab, p, 50, 55)
    lab.assign("0", [p])
    with lab.running():
        lab.wait_until_copied([p])
    assert len(_values(lab, p)) == 55
    assert cut(source, p.topic, 0, share=0.5, lowest=20) == 40
    source.start()
    source.wait_ready()

    _send(lab, p, *(b"new %d" % at for at in range(40, 45)))
    with lab.running():
        lab.wait_until_copied([p])
    _send(lab, p, *(b"new %d" % at for at in range(45, 70)))
    with lab.running():
        lab.wait_until_copied([p])

    assert {b"new %d" % at for at in range(40, 70)} <= _values(lab, p)
    assert lab.decisions(p) == []


def test_of_what_was_discarded_the_rest_that_a_log_still_holds_stays_out(
    broker_factory: BrokerFactory,
) -> None:
    source, target = broker_factory("P"), broker_factory("B")
    lab = CopyLab(source.bootstrap, target.bootstrap, data_loss_policy="continue")
    [p] = lab.topic()
    lab.assign("0", [p])
    _send(lab, p, *_random(50))
    with lab.running():
        lab.wait_until_copied([p])
    for at in range(50, 55):
        _send(lab, p, b"old %d" % at)
    _discard(lab, p, 50, 55)
    assert cut(source, p.topic, 0, share=0.5, lowest=50) == 52
    source.start()
    source.wait_ready()

    _send(lab, p, *(b"new %d" % at for at in range(52, 60)))
    with lab.running():
        lab.wait_until_copied([p])

    values = _values(lab, p)
    assert {value for value in values if value and len(value) == 6} == {
        b"new %d" % at for at in range(52, 60)
    }
    assert lab.decisions(p) == [("discard", (50, 52))]


def _discard(lab: CopyLab, p: AssignedPartition, first: int, end: int) -> None:
    """Decide about records at the end of the source's log, as the settlement of a return does."""
    place = TopicPartition(p.topic, 0)
    ends = {epoch: lab.source.epoch_ends({place: epoch})[place] for epoch in range(50)}
    [epoch] = [epoch for epoch, found in ends.items() if found >= end]
    lab.note(
        PartitionNotes.from_decision(
            *("discard", "r1", (p.topic, 0, p.topic_id), (first, end), "discarded", 1000),
            epoch=epoch,
        )
    )


def _values(lab: CopyLab, p: AssignedPartition) -> set[bytes | None]:
    bootstrap = lab.target_props["bootstrap.servers"]
    return {record.value for _, record in read_log(bootstrap, p.target_topic, 0)}
