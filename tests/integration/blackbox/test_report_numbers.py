"""Moves that cost something: the report has the numbers that the harness counts."""

from __future__ import annotations

from typing import Any

import pytest
from tests.integration.blackbox.audit import read_again
from tests.integration.blackbox.programs import Client
from tests.integration.blackbox.stage import Stage
from tests.waiting import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.integration]

EARLY, LATER = 80, 320


def write(stage: Stage, name: str, count: int) -> None:
    """Write transactions of 20 records on P, of which every fifth is aborted, and copy them.

    Offsets count markers and aborted records too, so they are no measure of anything.
    """
    tried = count * 5 // 4
    bank = stage.writer(name, transactional_id=f"{name}-{stage.site.unique}", rate=0, count=tried)
    before = len(stage.acked)
    stage.start(stage.p, bank)
    bank.finish()
    assert len(stage.acked) == before + count
    eventually(lambda: stage.copy(stage.p).total() == before + count, "copied")


def read(stage: Stage, alias: str, name: str, count: int) -> None:
    """Let a group read so many records on a cluster, and leave."""
    member = stage.reader(name, reset="earliest", store=True, count=count)
    stage.start(alias, member)
    member.finish()
    stage.readers.remove(member)


def carried_out(stage: Stage, reader: Client, source: str, choice: str, word: str) -> Any:
    """Move an idle group: refused with the reason, then with the choice; read the rest there."""
    with stage.run("refused", source, groups=[reader.group]) as move:
        move.await_reason(reader.group, word)
        stage.end_refused(move)
    with stage.run("accepted", source, choice, groups=[reader.group]) as move:
        report = move.report()
    stage.start(stage.b if source == stage.p else stage.p, reader)
    return report


def await_end(stage: Stage, reader: Client) -> None:
    """Wait until the last record of each partition is processed; earlier ones may be missing."""
    last = {event.partition: event.id for event in stage.acked}
    done = set(last.values())
    eventually(lambda: done <= {event.id for event in reader.events}, "the end is read")
    stage.stop(reader)


def test_records_the_target_has_dropped_are_skipped_as_often_as_the_report_says(
    stage: Stage,
) -> None:
    write(stage, "early", EARLY)
    read(stage, stage.p, "far", EARLY)
    write(stage, "later", LATER)
    reader = stage.reader("far", store=True)
    stage.trim(stage.b, f"{stage.p}.{stage.topic}")

    report = carried_out(stage, reader, stage.p, "--accept-skips", "accept_skips")
    await_end(stage, reader)

    counted, reported = stage.count(reader), report["groups"][reader.group]
    assert counted.lost > 0
    assert (reported["skipped"], reported["re_read"]) == (counted.lost, counted.twice), counted
    assert reported["lag_at_hold"] == LATER
    assert report["rpo_records"] == 0


def test_a_group_put_back_to_where_it_was_reads_as_much_again_as_the_report_says(
    stage: Stage,
) -> None:
    """Somebody had started it on the target by mistake, where it went further than at home."""
    write(stage, "early", EARLY)
    read(stage, stage.p, "twice", EARLY)
    write(stage, "later", LATER)
    read(stage, stage.b, "twice", 200)
    reader = stage.reader("twice", store=True)

    began_ms = reader.events[-1].time_ms + 1
    report = carried_out(stage, reader, stage.p, "--overwrite", "overwrite")
    await_end(stage, reader)

    again, reported = read_again(reader.events, began_ms), report["groups"][reader.group]
    assert again > 0
    assert (reported["skipped"], reported["re_read"]) == (stage.count(reader).lost, again)
    assert reported["lag_at_hold"] == LATER
