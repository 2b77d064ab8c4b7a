"""A source that lost the end of its log: seen even where it has grown past the position since."""

from __future__ import annotations

import os
from collections.abc import Mapping

import pytest
from tests.conftest import BrokerFactory
from tests.faults.campaign.truncation import cut
from tests.integration.copying import CopyLab
from tests.waiting import eventually

from srm.domain.replication_records import AssignedPartition
from srm.domain.topics import TopicPartition
from srm.stack.kafka import KafkaBroker
from srm.testing.logs import read_log

pytestmark = [pytest.mark.kafka, pytest.mark.integration]


def _send(lab: CopyLab, p: AssignedPartition, count: int) -> None:
    producer = lab.producer(**{"linger.ms": 200})
    for _ in range(count):
        producer.produce(p.topic, os.urandom(100), partition=p.partition)
    assert producer.flush(120) == 0


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
    [
        (50, "stop", "kept"),
        (None, "stop", "kept"),
        (10, "continue", "kept"),
        (50, "continue", "lost"),
    ],
)
def test_a_truncated_source_is_seen_and_the_map_goes_on_exactly(
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
            _send(lab, p, 20)
            lab.wait_until_copied([p])
        _abort(lab, p, 60)  # the run ends here, and its block is written once more
        lab.wait_until_copied([p])
    if reports == "lost":
        lab.forget_reports()
    end = cut(source, p.topic, 0, share=0.5, lowest=20)  # however the sends were batched
    assert end in range(20, 60), "within what was copied"
    before = read_log(lab.target_props["bootstrap.servers"], p.target_topic, 0)
    source.start()
    source.wait_ready()
    grown_by = 62 - end if grown_by is None else grown_by
    _send(lab, p, grown_by)
    lost = (end, 62 if reports == "kept" else 60)

    with lab.running():
        if policy == "stop":
            status = lab.stopped(p)
            assert (status.lost_from, status.lost_to) == lost
            assert "truncated" in status.reason
            return
        eventually(
            lambda: (s := lab.status(p)) is not None and (s.lost_from, s.lost_to) == lost,
            "the lost range is told",
        )
        _send(lab, p, 10)
        lab.wait_until_copied([p])
        eventually(
            lambda: sum(run.count for run in lab.offset_map(p).runs) == end + grown_by + 10,
            "all is copied that the source has now",
        )

    found = read_log(source.bootstrap, p.topic, 0)
    copied = dict(read_log(lab.target_props["bootstrap.servers"], p.target_topic, 0))
    assert all(copied[offset] == record for offset, record in before)
    mapped = {
        r.source_start + i: r.target_start + i
        for r in lab.offset_map(p).runs
        for i in range(r.count)
    }
    assert {s: copied[t] for s, t in mapped.items()} == dict(found)
