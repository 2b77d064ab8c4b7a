"""The one translation against an oracle that walks the logs record by record."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from tests.unit.domain.groups.copy_history import COPY, ORIGINAL, History, histories

from srm.domain.flow_state.replication_records import PartitionNotes, PartitionStatus
from srm.domain.groups.translation import (
    UNFINISHED,
    UNKNOWN_LOG,
    Direction,
    LogRange,
    Losses,
    PartitionFacts,
    translate,
)
from srm.domain.names.topics import OpenTransaction
from srm.domain.offset_map.map_records import Entries, IndexEntry
from srm.domain.offset_map.offset_map import OffsetMap, Position, Run

directions = st.sampled_from(["forward", "reverse"])


@given(histories(), directions, st.data())
def test_a_group_continues_with_exactly_what_it_has_not_read_and_the_rest_is_counted(
    history: History, direction: Direction, data: st.DataObject
) -> None:
    facts = history.facts(direction)
    assert facts.upstream_log is not None
    assert facts.downstream_log is not None
    commit = data.draw(st.integers(0, facts.upstream_log.end + 1))
    found = translate(facts, commit)
    event(f"{direction} {found.state}")

    if found.offset is None:
        return
    assert found.offset >= facts.downstream_log.start
    side = 1 if direction == "forward" else 0
    reads = [pair[0] for pair in history.pairs if pair[side] >= found.offset]
    if found.state == "translated":
        assert found.reached == commit
        assert reads == history.to_read(direction, commit)
        assert found.total_skipped == history.skipped(direction, commit)
    else:
        assert found.state in UNFINISHED
        assert found.reached is not None
        assert found.reached + found.remaining == commit
        assert not set(history.to_read(direction, found.reached)) - set(reads)
        assert found.total_skipped == history.skipped(direction, found.reached)


@given(histories(), directions, st.data())
def test_each_state_has_its_own_cause(
    history: History, direction: Direction, data: st.DataObject
) -> None:
    facts = history.facts(direction)
    assert facts.upstream_log is not None
    commit = data.draw(st.integers(0, facts.upstream_log.end + 2))
    found = translate(facts, commit)
    end = history.copied if direction == "forward" else history.offset_map.known_target_end or 0

    if commit > facts.upstream_log.end:
        assert found.state == "past-end"
    elif commit > end:
        # A transaction is open upstream, or replication is behind: the commit is a true one.
        nothing = not history.pairs and direction == "reverse"
        assert found.state in UNFINISHED or (nothing and found.state == "translated")
    else:
        assert found.state == "translated" or (found.state == "no-map" and not history.pairs)


@given(histories(), st.data())
def test_there_and_back_nobody_is_moved_over_a_record_nor_back_over_one(
    history: History, data: st.DataObject
) -> None:
    history = replace(history, starts=(0, 0))
    commit = data.draw(st.integers(0, history.copied))
    there = translate(history.facts("forward"), commit)
    if there.state != "translated" or not history.pairs:
        return
    back = translate(history.facts("reverse"), there.offset)

    assert back.state == "translated"
    assert history.to_read("forward", back.offset or 0) == history.to_read("forward", commit)


@given(histories(), st.data())
def test_losses_of_which_only_the_number_is_known_are_never_counted_too_low(
    history: History, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(history.original)))
    first = history.pairs[0][0] if history.pairs else start
    counted = Losses.of(history.notes, None).count(history.offset_map, max(start, first))

    assert sum(o >= max(start, first) for o in history.refused) <= counted <= len(history.refused)


def forward(**changes: object) -> PartitionFacts:
    """Records 0..99 of P are at 0..99 on B, and nothing is behind."""
    log = LogRange(0, 100, 100)
    facts = PartitionFacts(
        "forward",
        ORIGINAL,
        COPY,
        "B",
        log,
        log,
        OffsetMap.of([Run(0, 0, 100)], Position(*[100] * 3)),
    )
    return replace(facts, **changes)


def reverse(**changes: object) -> PartitionFacts:
    facts = replace(forward(), direction="reverse", upstream=COPY, downstream=ORIGINAL, target="P")
    return replace(facts, **changes)


@pytest.mark.parametrize("facts", [forward(), reverse()], ids=["forward", "reverse"])
def test_what_the_other_side_has_dropped_is_skipped_in_both_directions(
    facts: PartitionFacts,
) -> None:
    found = translate(replace(facts, downstream_log=LogRange(50, 100, 100)), 10)

    assert (found.state, found.offset, found.total_skipped) == ("translated", 50, 40)
    assert found.reason == "40 records already deleted by retention"


@pytest.mark.parametrize(
    ("facts", "commit", "state", "reason"),
    [
        (forward(damage="block 7"), 10, "damaged-map", "of Payments-0 cannot be used: block 7"),
        (reverse(damage="block 7"), 10, "damaged-map", "of Payments-0 cannot be used: block 7"),
        (forward(downstream_log=None), 10, "no-target", "P.Payments-0 does not exist on B"),
        (forward(offset_map=OffsetMap()), 10, "no-map", "Payments-0 was never copied"),
        (forward(), 101, "past-end", "the commit 101 is past the end 100 of Payments-0"),
        (reverse(), 101, "past-end", "the commit 101 is past the end 100 of P.Payments-0"),
        (forward(downstream_log=LogRange(0, 5, 5)), 10, "past-end", "P.Payments-0 ends at 5"),
        (
            reverse(downstream_log=LogRange(0, 5, 5)),
            60,
            "past-end",
            "Payments-0 ends at 5, before 60 of the map: it was truncated; wait until its",
        ),
        (forward(), None, "no-commit", ""),
        (reverse(damage="block 7"), None, "no-commit", ""),
    ],
)
def test_what_cannot_be_translated_has_no_offset_and_says_why(
    facts: PartitionFacts, commit: int | None, state: str, reason: str
) -> None:
    found = translate(facts, commit)

    assert (found.state, found.offset) == (state, None)
    assert reason in found.reason


def test_a_reader_at_the_tail_of_an_open_transaction_keeps_the_pair_where_the_copy_ends() -> None:
    """Kafka's default isolation level reads past the last stable offset."""
    owner = OpenTransaction(ORIGINAL, 100, 7, 0, "app", 3_000)
    found = translate(forward(upstream_log=LogRange(0, 100, 151), transactions=(owner,)), 140)

    assert (found.state, found.remaining) == ("not-copied-yet", 40)
    assert (found.reached, found.offset) == (100, 100)
    assert (
        "open from offset 100 on (producer id 7, transactional id 'app', age 3 s)" in found.reason
    )


def test_where_nothing_was_ever_copied_the_originals_first_record_is_the_next_to_read() -> None:
    """With auto.offset.reset=latest a group would skip what is written before it arrives."""
    nothing = reverse(offset_map=OffsetMap(), upstream_log=None, downstream_log=LogRange(7, 9, 9))
    markers = replace(
        nothing, offset_map=OffsetMap((), Position(9, 2, 9)), upstream_log=LogRange(0, 2, 2)
    )
    empty = replace(nothing, upstream_log=LogRange(0, 0, 0))

    for facts in (nothing, markers, empty):
        assert (translate(facts, None).state, translate(facts, None).offset) == ("translated", 7)
    assert translate(empty, 0).offset == 7
    # Records that the map does not know, or a copy that both sides dropped, prove nothing.
    for unproved in (LogRange(0, 3, 3), LogRange(3, 3, 3)):
        assert translate(replace(nothing, upstream_log=unproved), None).state == "no-commit"
    assert translate(replace(nothing, damage="block 7"), None).state == "no-commit"


def test_a_cluster_that_is_away_neither_drops_nor_ends_anything() -> None:
    found = translate(forward(downstream_log=UNKNOWN_LOG), 10)

    assert (found.state, found.offset, found.total_skipped) == ("translated", 10, 0)


def test_losses_come_from_notes_and_from_the_status_of_a_partition_that_goes_on() -> None:
    note = PartitionNotes("0", "Payments", 0, "id").with_loss(40, 50, "too large", 0)
    status = PartitionStatus("Payments", 0, "copying", "lost", 45, 60)

    assert Losses.of((note,), status).ranges == ((40, 50), (50, 60))
    assert Losses.of((), replace(status, state="stopped")).ranges == ()


def test_what_is_in_a_lost_part_of_the_map_is_refused_with_what_helps_and_the_rest_is_not():
    entries = Entries.of(
        [
            IndexEntry(0, 10, 0, 10, 10, 0, 0, 0, 0),
            IndexEntry(20, 40, 10, 25, 12, 0, 0, 0, 0),
            IndexEntry(50, 60, 30, 40, 10, 0, 0, 0, 0),
        ]
    )
    known = OffsetMap.window(entries, {}, Position(60, 40, 60), open_end=False)
    facts = forward(offset_map=known, gap="the block from target offset 10 on is missing; restart")

    lost = translate(facts, 30)

    assert lost.state == "damaged-map"
    assert "Payments-0 cannot be used: the block from target offset 10 on is missing" in lost.reason
    assert translate(facts, 5).offset == 5
    assert translate(facts, 55).offset == 35
    assert facts.records_upstream(30, 60) == 30  # every offset counts where the map is lost


def test_without_the_end_of_its_map_an_offset_is_not_taken_for_one_still_to_be_copied():
    known = OffsetMap((Run(0, 0, 10),))
    facts = forward(offset_map=known, gap="the last block is missing; restart")

    assert translate(facts, 5).offset == 5
    assert translate(facts, 15).state == "damaged-map"
    assert translate(replace(facts, gap=""), 15).state == "not-copied-yet"


def test_where_the_copy_lost_its_end_and_the_map_does_not_know_nobody_is_moved_back() -> None:
    """A marker stands where record 800 stood: who has read it has not read record 800."""
    known = OffsetMap((Run(0, 0, 1000),), Position(1000, 1000, 1000))
    log = LogRange(0, 801, 801)

    facts = reverse(offset_map=known, upstream_log=log, downstream_log=LogRange(0, 1000, 1000))

    found = translate(facts, 801)

    assert (found.state, found.offset) == ("map-behind", None)
    assert "ends at 801" in found.reason
    assert "the log was truncated" in found.reason
    whole = replace(facts, upstream_log=LogRange(0, 1000, 1000))
    assert translate(whole, 801).offset == 801


def decided(decision: str, begin: int, end: int) -> PartitionNotes:
    place = "Payments", 0, "id"
    return PartitionNotes.from_decision(decision, "r", place, (begin, end), "why", 0)  # type: ignore[arg-type]


@given(histories(), st.data())
def test_behind_a_residue_groups_that_go_back_read_what_was_kept_and_step_over_what_was_discarded(
    history: History, data: st.DataObject
) -> None:
    """A residue is a range that nobody copied: one that the copy has come to, and gone past."""
    begin = data.draw(st.integers(history.began, history.copied), "begin")
    end = data.draw(st.integers(begin, history.copied), "end")
    pairs = [pair for pair in history.pairs if not begin <= pair[0] < end]
    copies = {pair[1] for pair in pairs}
    copy = tuple(source if place in copies else None for place, source in enumerate(history.copy))
    left = replace(history, copy=copy)
    commit = data.draw(st.integers(0, len(copy)), "commit")
    plain = left.facts("reverse")
    facts = {
        decision: replace(plain, losses=Losses.of([decided(decision, begin, end)], None))
        for decision in ("keep", "discard")
    }

    found = {decision: translate(one, commit) for decision, one in facts.items()}

    assert found["keep"] == translate(plain, commit)
    there = found["keep"].offset
    if there is None or found["keep"].state != "translated":
        return
    has_read_all_before = not any(there <= source < begin for source, _ in pairs)
    steps_over = begin < end and has_read_all_before and there < end
    assert found["discard"].offset == (end if steps_over else there)


def test_what_was_discarded_is_stepped_over_only_once_the_copy_is_known_to_end_there() -> None:
    """Copies behind the last report stand before the residue: nobody has read them yet."""
    facts = PartitionFacts(
        "reverse",
        COPY,
        ORIGINAL,
        "P",
        LogRange(0, 60, 60),
        LogRange(0, 80, 80),
        OffsetMap.of([Run(0, 0, 40)], Position(40, 40, 80)),
        losses=Losses.of([decided("discard", 50, 80)], None),
    )
    later = replace(facts, offset_map=OffsetMap.of([Run(0, 0, 50)], Position(80, 50, 80)))

    assert translate(facts, 40).offset == 40
    assert translate(later, 40).offset == 40
    assert translate(later, 50).offset == 80


def test_offsets_that_were_discarded_and_hold_copied_records_now_are_not_stepped_over() -> None:
    """The source lost its end, and gave them to others; the copy has come to 60 of these."""
    facts = PartitionFacts(
        *("reverse", COPY, ORIGINAL, "P", LogRange(0, 70, 70), LogRange(0, 90, 90)),
        OffsetMap.of([Run(0, 0, 40), Run(40, 50, 20)], Position(60, 70, 90)),
        losses=Losses.of([decided("discard", 50, 80)], None),
    )

    assert translate(facts, 65).offset == 55
    assert translate(facts, 70).offset == 60


def test_of_a_topic_of_which_nothing_was_copied_all_can_be_discarded() -> None:
    facts = PartitionFacts(
        *("reverse", COPY, ORIGINAL, "P", LogRange(0, 1, 1), LogRange(0, 20, 20)),
        OffsetMap.of([], Position(20, 1, 20)),
        losses=Losses.of([decided("discard", 0, 20)], None),
    )

    assert translate(facts, None).offset == 20


def test_a_group_skips_what_was_kept_but_not_what_was_discarded() -> None:
    offset_map = OffsetMap.of([Run(0, 0, 50)], Position(80, 50, 80))
    facts = PartitionFacts(
        *("forward", ORIGINAL, COPY, "B", LogRange(0, 80, 80), LogRange(0, 50, 50)), offset_map
    )
    skipped = {
        decision: translate(
            replace(facts, losses=Losses.of([decided(decision, 50, 80)], None)), 60
        ).total_skipped
        for decision in ("keep", "discard")
    }

    assert skipped == {"keep": 20, "discard": 0}


def test_a_group_skips_nothing_where_the_source_has_lost_the_end_of_its_log() -> None:
    """Offsets 65 to 79 are noted as lost: only five records are there to be skipped."""
    facts = PartitionFacts(
        *("forward", ORIGINAL, COPY, "B", LogRange(0, 65, 65), LogRange(0, 50, 50)),
        OffsetMap.of([Run(0, 0, 50)], Position(65, 50, 65)),
        losses=Losses(((50, 80),)),
    )

    assert translate(facts, 60).total_skipped == 5
