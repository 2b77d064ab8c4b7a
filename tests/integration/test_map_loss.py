"""A block of the offset map that is lost is missed, wherever it is, and found again in the logs."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tests.integration.cleaning import write_cleaned
from tests.integration.copying import CopyLab
from tests.waiting import eventually

from srm.domain import internal_topics
from srm.domain.map_index import is_index_key
from srm.domain.map_records import decode_block_key, map_partition
from srm.domain.replication_records import AssignedPartition
from srm.errors import NotLoadedError
from srm.replication.slot import index_writer, map_writer
from srm.stack.kafka import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.integration]

TRANSACTIONS = 60


@pytest.fixture(autouse=True)
def _small_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """A short log has a map with all kinds of records."""
    monkeypatch.setattr(map_writer, "RUNS_PER_BLOCK", 4)
    monkeypatch.setattr(index_writer, "ENTRIES_PER_CHUNK", 3)


@pytest.fixture
def lab(clusters: Mapping[str, KafkaBroker]) -> CopyLab:
    return CopyLab(clusters["P"].bootstrap, clusters["B"].bootstrap)


def _commit(lab: CopyLab, p: AssignedPartition, transactions: int) -> None:
    producer = lab.producer(**{"transactional.id": f"{p.topic}-writer"})
    producer.init_transactions(120)
    for number in range(transactions):
        producer.begin_transaction()
        for n in range(2):
            producer.produce(p.topic, b"%d of %d" % (n, number), partition=p.partition)
        producer.commit_transaction(120)


def _lose_block(lab: CopyLab, p: AssignedPartition, number: int) -> int:
    """Delete one block, and have the log cleaned; return how many there were."""
    topic, place = internal_topics.offset_map(lab.flow.source), map_partition(p.topic, p.partition)
    keys = sorted(
        (found.target_start, key)
        for key in lab.target.compacted(topic, place).read()
        if not is_index_key(key)
        for found in (decode_block_key(key),)
        if found.topic_id == p.topic_id
    )
    write_cleaned(lab.target, topic, place, {keys[number][1]: None})
    return len(keys)


def _records(lab: CopyLab, p: AssignedPartition) -> int:
    """Count what the blocks of the map hold, 0 while one is missing."""
    try:
        return lab.offset_map(p).runs.records
    except NotLoadedError:
        return 0


@pytest.mark.parametrize("number", [5, -1])
def test_a_lost_block_is_found_again_in_the_logs(lab: CopyLab, number: int) -> None:
    [p] = lab.topic()
    _commit(lab, p, TRANSACTIONS)
    lab.assign("0", [p])
    with lab.running():
        lab.wait_until_copied([p])
    lab.assert_equal([p])
    assert _lose_block(lab, p, number) > 12
    with pytest.raises((AssertionError, NotLoadedError)):
        lab.assert_equal([p])

    with lab.running():
        eventually(lambda: _records(lab, p) == 2 * TRANSACTIONS, "the map is whole")
        lab.wait_until_copied([p])

    lab.assert_equal([p])


def test_each_restart_continues_the_map_where_it_was(lab: CopyLab) -> None:
    [p] = lab.topic()
    lab.assign("0", [p])
    for _ in range(3):
        _commit(lab, p, 15)
        with lab.running():
            lab.wait_until_copied([p])

    lab.assert_equal([p])
