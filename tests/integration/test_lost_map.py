"""State is lost, and retention has shortened one of the logs: nothing is copied twice."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tests.integration.copying import CopyLab, delete_before

from srm.stack.kafka import KafkaBroker
from srm.testing.logs import read_log

pytestmark = [pytest.mark.kafka, pytest.mark.integration, pytest.mark.timeout(600)]


@pytest.mark.parametrize(
    ("configs", "payload"),
    [({}, 40_000), ({"message.timestamp.type": "LogAppendTime"}, 10)],
    ids=["more than the walk looks ahead", "times of the target's own"],
)
@pytest.mark.parametrize("trimmed", ["source", "target"])
def test_logs_that_begin_apart_are_resumed_without_map_and_reports(
    clusters: Mapping[str, KafkaBroker], configs: Mapping[str, str], payload: int, trimmed: str
) -> None:
    lab = CopyLab(clusters["P"].bootstrap, clusters["B"].bootstrap)
    [p] = lab.topic(configs=configs)
    lab.assign("0", [p])
    producer = lab.producer()
    padding = b"x" * payload
    with lab.running():
        for number in range(2000):
            producer.produce(p.topic, b"%d " % number + padding, partition=0)
        assert producer.flush(120) == 0
        lab.wait_until_copied([p])
    # Of a claim, or more.
    markers = lab.offset_map(p).forward(0).offset
    lab.forget_state()
    if trimmed == "target":
        delete_before(lab.target_props, p.target_topic, 1900 + markers)
    else:
        delete_before(lab.source_props, p.topic, 1900)

    with lab.running():
        for number in range(2000, 2010):
            producer.produce(p.topic, b"%d " % number + padding, partition=0)
        assert producer.flush(120) == 0
        lab.wait_until_copied([p])

    copied = read_log(lab.target_props, p.target_topic, 0)
    numbers = [int((record.value or b"").split()[0]) for _, record in copied]
    first = 1900 if trimmed == "target" else 0
    assert numbers == list(range(first, 2010))
    mapped = [
        (run.source_start + i, run.target_start + i)
        for run in lab.offset_map(p).runs
        for i in range(run.count)
    ]
    where = {number: offset for (offset, _), number in zip(copied, numbers, strict=True)}
    assert mapped == [(number, where[number]) for number in range(1900, 2010)]
