"""A writer that was forgotten writes transactions to the side that was left."""

from __future__ import annotations

import pytest
from tests.integration.blackbox.stage import Stage
from tests.waiting import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.integration]


def test_the_residue_counts_committed_records_and_neither_markers_nor_aborted_ones(
    stage: Stage,
) -> None:
    """The records are copied by the time the group is started on the target: nothing is unknown."""
    reader = stage.reader("plain", reset="earliest", store=True)
    writer = stage.writer("shop", rate=100)
    forgotten = stage.writer(
        "forgotten", transactional_id=f"f-{stage.site.unique}", rate=0, batch=10, count=70
    )
    stage.start(stage.p, reader, writer)
    eventually(lambda: reader.count("processed") > 50, "the group works on P")

    stage.await_known(stage.p)
    with stage.run("residue", stage.p) as move:
        move.await_held()
        stage.stop()
        move.await_gone()
        before = len(stage.acked)
        stage.start(stage.p, forgotten)
        forgotten.finish()
        residue = len(stage.acked) - before
        eventually(lambda: stage.copy(stage.p).total() == len(stage.acked), "they are copied")
        stage.start(stage.b, reader)
        report = move.report()
    stage.await_read(reader)
    stage.stop()

    assert residue == 60
    assert report["residue"] == {stage.topic: residue}
    assert stage.count(reader).clean, stage.count(reader)
