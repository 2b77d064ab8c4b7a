"""Whole moves of clients that know nothing of srm; the harness counts for itself."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.integration.blackbox.audit import read_ids
from tests.integration.blackbox.stage import Stage
from tests.waiting import eventually

# Five applications at once, of which two are JVMs: 26 s on an idle machine, minutes on a busy one.
pytestmark = [pytest.mark.kafka, pytest.mark.integration]


def test_clients_of_all_kinds_move_there_and_back_and_process_each_record_once(
    stage: Stage,
) -> None:
    stage.reader("plain", reset="earliest", store=True)
    stage.reader("kip848", protocol="consumer", reset="earliest", store=True)
    stage.java_reader("java", reset="earliest")
    stage.processor("eos")
    stage.streams("streams")
    stage.writer("shop", rate=100)
    stage.java_writer("branch")
    stage.writer("bank", transactional_id=f"bank-{stage.site.unique}", rate=200)

    stage.start(stage.p)
    eventually(lambda: all(r.count("processed") > 100 for r in stage.readers), "all work on P")
    there = stage.move("there", stage.p)
    eventually(lambda: all(r.count("processed") > 100 for r in stage.readers), "all work on B")
    back = stage.move("back", stage.b)
    eventually(lambda: all(w.count("acked") > 50 for w in stage.writers), "all write on P again")
    stage.stop(*stage.writers)
    for reader in stage.readers:
        stage.await_read(reader)
    stage.stop()

    for reader in stage.readers:
        counted = stage.count(reader)
        assert counted.clean, (reader.name, counted)
        for report in (there, back):
            reported = report["groups"][reader.group]
            assert (reported["skipped"], reported["re_read"]) == (0, 0), report
            assert reported["resumed"], report
    for source, report in ((stage.p, there), (stage.b, back)):
        stage.await_copied(source)  # what was written last was read where it was written
        assert report["rpo_records"] == 0, report
        assert sum(report["residue"].values()) == 0, report
        assert report["ok"], report["problems"]
    results: Counter[str] = Counter()

    def have_ended() -> bool:
        """Whether the markers are there, which are written after a commit has returned."""
        results.clear()
        for alias in (stage.p, stage.b):
            results.update(read_ids(stage.bootstrap[alias], stage.results))
        return results.total() >= len(stage.acked)

    eventually(have_ended, "the last transactions have ended")
    assert results == Counter(event.id for event in stage.acked), "results of transactions"
