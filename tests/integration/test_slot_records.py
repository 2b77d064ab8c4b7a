"""What is done to records on their way: headers, filters, isolation; and it survives a restart."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import replace

import pytest
from tests.integration.copying import CopyLab
from tests.waiting import eventually

from srm.domain.flow_state.replication_records import AssignedPartition
from srm.domain.names.record_headers import (
    PROVENANCE_HEADER,
    SOURCE_OFFSETS_HEADER,
    Provenance,
    RecordSettings,
    parse_overrides,
)
from srm_lab.stack.kafka import KafkaBroker
from srm_lab.testing.logs import LoggedRecord, read_log

pytestmark = [pytest.mark.kafka, pytest.mark.integration]

ALL = RecordSettings(provenance=True, source_offsets=True, exclude_headers=("test-.*",))


def _lab(clusters: Mapping[str, KafkaBroker], **config: object) -> CopyLab:
    return CopyLab(clusters["P"].bootstrap, clusters["B"].bootstrap, **config)


def _copied(lab: CopyLab, p: AssignedPartition) -> list[LoggedRecord]:
    log = read_log(lab.target_props["bootstrap.servers"], p.target_topic, p.partition)
    return [record for _, record in log]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_copied_records_say_where_they_come_from(
    clusters: Mapping[str, KafkaBroker], codec: str
) -> None:
    lab = _lab(clusters, records=ALL)
    [p] = lab.topic()
    earlier = Provenance("elsewhere", "T", 1).value()
    producer = lab.producer(**{"compression.type": codec, "linger.ms": 50})
    for i in range(300):
        headers: list[tuple[str, bytes]] = [("own", b"1")] if i % 2 else []
        if i % 10 == 5:
            headers.append((PROVENANCE_HEADER, earlier))
            headers.append((SOURCE_OFFSETS_HEADER, b'{"E":7}'))
        if i % 10 == 6:
            headers.append(("test-run", b"1"))
        producer.produce(p.topic, str(i).encode(), headers=headers, partition=0)
    assert producer.flush(120) == 0
    lab.assign("0", [p])

    with lab.running():
        lab.wait_until_copied([p])

    copied = {int(r.value or b"-1"): r for r in _copied(lab, p)}
    assert sorted(copied) == [i for i in range(300) if i % 10 != 6]
    for i, record in copied.items():
        own = [header for header in record.headers if header[0] == "own"]
        places = [value for name, value in record.headers if name == PROVENANCE_HEADER]
        [offsets] = [value for name, value in record.headers if name == SOURCE_OFFSETS_HEADER]
        assert len(own) == i % 2
        assert places[:-1] == ([earlier] if i % 10 == 5 else [])
        provenance = Provenance.decode(places[-1])
        assert provenance is not None
        assert (provenance.cluster_id, provenance.topic) == (lab.source.cluster_id(), p.topic)
        assert json.loads(offsets or b"") == {
            **({"E": 7} if i % 10 == 5 else {}),
            lab.flow.source: i,
        }
    mapped = [run.source_start + i for run in lab.offset_map(p).runs for i in range(run.count)]
    assert mapped == sorted(copied)


def test_records_do_not_return_to_the_topic_they_came_from(
    clusters: Mapping[str, KafkaBroker],
) -> None:
    plain = _lab(clusters)
    here = plain.target.cluster_id()
    overrides = parse_overrides(f"{here},.*,0-5")
    lab = _lab(clusters, records=RecordSettings(provenance=True, overrides=overrides))
    [p] = lab.topic()
    producer = lab.producer()
    came_from = [
        (here, p.target_topic, 10),
        (here, "another", 10),
        ("another", p.target_topic, 10),
        (here, p.target_topic, 3),
        (here, p.target_topic, 11),
    ]
    for number, place in enumerate(came_from):
        headers = [(PROVENANCE_HEADER, Provenance(*place).value())]
        producer.produce(p.topic, str(number).encode(), headers=headers, partition=0)
    assert producer.flush(120) == 0
    lab.assign("0", [p])

    with lab.running():
        lab.wait_until_copied([p])  # a filtered tail is no lag

    assert [record.value for record in _copied(lab, p)] == [b"1", b"2", b"3"]


def _send(lab: CopyLab, p: AssignedPartition, first: int, count: int) -> None:
    """Write numbers, each fourth with a header that ``ALL`` filters."""
    producer = lab.producer()
    for number in range(first, first + count):
        headers = [("test-run", b"1")] if number % 4 == 3 else []
        producer.produce(p.topic, str(number).encode(), headers=headers, partition=0)
    assert producer.flush(120) == 0


def _numbers(lab: CopyLab, p: AssignedPartition) -> list[int]:
    return [int(record.value or b"-1") for record in _copied(lab, p)]


def test_settings_may_change_between_a_crash_and_the_restart(
    clusters: Mapping[str, KafkaBroker],
) -> None:
    lab = _lab(clusters)
    [p] = lab.topic()
    lab.assign("0", [p])
    adds = replace(ALL, exclude_headers=())
    for number, settings in enumerate(
        (RecordSettings(), adds, RecordSettings(source_offsets=True), RecordSettings())
    ):
        _send(lab, p, 40 * number, 40)
        lab.use(records=settings)
        lab.forget_state()
        with lab.running():
            lab.wait_until_copied([p])

    assert _numbers(lab, p) == list(range(160))


def test_a_filter_that_changed_while_all_state_was_lost_stops_and_copies_nothing_twice(
    clusters: Mapping[str, KafkaBroker],
) -> None:
    """Nothing tells any more that the records were left out: they may as well be lost."""
    lab = _lab(clusters)
    [p] = lab.topic()
    lab.assign("0", [p])
    _send(lab, p, 0, 40)
    lab.use(records=ALL)
    with lab.running():
        lab.wait_until_copied([p])
    lab.use(records=RecordSettings())
    lab.forget_state()
    _send(lab, p, 40, 1)

    def is_undecidable() -> bool:
        status = lab.status(p)
        return status is not None and "undecidable" in status.reason

    with lab.running():
        eventually(is_undecidable, "it stops and says why")

    assert _numbers(lab, p) == [number for number in range(40) if number % 4 != 3]


def _transaction(lab: CopyLab, p: AssignedPartition, values: list[str], *, commit: bool) -> None:
    producer = lab.producer(**{"transactional.id": uuid.uuid4().hex})
    producer.init_transactions(120)
    producer.begin_transaction()
    for value in values:
        producer.produce(p.topic, value.encode(), partition=0)
    producer.flush(120)
    if commit:
        producer.commit_transaction(120)
    else:
        producer.abort_transaction(120)


def test_read_uncommitted_copies_what_is_open_or_aborted(
    clusters: Mapping[str, KafkaBroker],
) -> None:
    lab = _lab(clusters, isolation_level="read_uncommitted")
    [p] = lab.topic()
    _transaction(lab, p, ["a", "b"], commit=False)
    _transaction(lab, p, ["c"], commit=True)
    hanging = lab.producer(**{"transactional.id": uuid.uuid4().hex})
    hanging.init_transactions(120)
    hanging.begin_transaction()
    hanging.produce(p.topic, b"d", partition=0)
    hanging.flush(120)
    lab.assign("0", [p])

    with lab.running():
        eventually(lambda: len(_copied(lab, p)) == 4, "the open transaction is copied")
        eventually(
            lambda: any(
                entry.position.source_next == entry.position.source_end == 6
                for report in lab.reports()
                for entry in report.positions
            ),
            "nothing is left to copy, though a transaction is open",
        )
        hanging.abort_transaction(120)

    assert [record.value for record in _copied(lab, p)] == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize(
    "target",
    [
        {"message.timestamp.type": "LogAppendTime"},
        {"compression.type": "gzip"},
        {"message.timestamp.type": "LogAppendTime", "compression.type": "zstd"},
    ],
    ids=lambda target: "+".join(target.values()),
)
def test_a_target_with_its_own_times_and_compression_is_resumed_without_its_map(
    clusters: Mapping[str, KafkaBroker], target: dict[str, str]
) -> None:
    lab = _lab(clusters)
    [p] = lab.topic()
    lab.target.alter_topic_configs({p.target_topic: target})
    producer = lab.producer(**{"linger.ms": 20, "compression.type": "lz4"})
    lab.assign("0", [p])
    for number in range(2):
        for i in range(500):
            producer.produce(p.topic, f"{number}-{i}".encode() * 20, partition=0)
        assert producer.flush(120) == 0
        with lab.running():
            lab.wait_until_copied([p])
        if number == 0:
            lab.forget_state()

    source = read_log(lab.source_props["bootstrap.servers"], p.topic, 0)
    assert [r.value for r in _copied(lab, p)] == [record.value for _, record in source]
    mapped = [run.source_start + i for run in lab.offset_map(p).runs for i in range(run.count)]
    assert mapped == [offset for offset, _ in source]
