"""Positions of a move against a model: two logs as lists, copied record by record."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from srm.domain.move.positions import PartitionFacts, partition_move
from srm.domain.offset_map import OffsetMap, Position, Run


@dataclass(frozen=True)
class Logs:
    """An original and its copy: each entry is a record id, or None for a marker."""

    original: list[int | None]
    copy: list[int | None]
    copied: int

    @property
    def offset_map(self) -> OffsetMap:
        places = {record: i for i, record in enumerate(self.copy) if record is not None}
        runs = [
            Run(offset, places[record], 1)
            for offset, record in enumerate(self.original[: self.copied])
            if record is not None
        ]
        end = max(places.values(), default=-1) + 1
        return OffsetMap.of(runs, Position(self.copied, end, len(self.original)))


@st.composite
def logs(draw, *, drained=None):
    """Original with markers anywhere, copied up to some point, the copy with markers of its own."""
    original, ids = [], 0
    for is_record in draw(st.lists(st.booleans(), max_size=12)):
        original.append(ids if is_record else None)
        ids += is_record
    copied = len(original) if drained else draw(st.integers(0, len(original)))
    copy: list[int | None] = []
    for record in original[:copied]:
        copy += [None] * draw(st.integers(0, 2))
        if record is not None:
            copy.append(record)
    copy += [None] * draw(st.integers(0, 1))
    return Logs(original, copy, copied)


def facts(model, committed, direction="forward", theirs=None, *, ours=False, target_start=0):
    here, there = (
        (model.original, model.copy) if direction == "forward" else (model.copy, model.original)
    )
    return PartitionFacts(
        "Payments",
        0,
        "P.Payments",
        direction,
        committed,
        0,
        len(here),
        theirs,
        ours,
        target_start,
        len(there),
        model.offset_map,
    )


def unread(log, offset):
    return [record for record in log[offset:] if record is not None]


@given(logs(), st.data())
def test_forward_a_group_goes_on_with_exactly_the_records_it_has_not_read(model, data):
    committed = data.draw(st.integers(0, model.copied))
    row = partition_move(facts(model, committed))

    if row.state == "ready":
        still = [r for r in unread(model.original, committed) if r in model.copy]
        assert unread(model.copy, row.resume) == still
        assert (row.re_read, row.skipped) == (0, 0)
    else:
        assert row.state == "no_map" or not unread(model.original[: model.copied], 0)


@given(logs(drained=True), st.data())
def test_backward_a_group_goes_on_with_exactly_the_records_it_has_not_read(model, data):
    committed = data.draw(st.integers(0, len(model.copy)))
    row = partition_move(facts(model, committed, "reverse"))

    if row.state == "ready":
        assert unread(model.original, row.resume) == unread(model.copy, committed)
        assert (row.re_read, row.skipped) == (0, 0)
    elif row.state == "not_copied":
        assert committed > model.offset_map.known_target_end
    else:
        assert not unread(model.copy, 0)


@given(logs(), st.data())
def test_lag_counts_records_never_markers_of_what_is_copied(model, data):
    committed = data.draw(st.none() | st.integers(0, len(model.copy)))
    row = partition_move(facts(model, committed, "reverse"))

    assert row.lag == len(unread(model.copy, committed or 0))


@given(logs(), st.data())
def test_a_commit_beyond_the_copy_is_not_copied_yet(model, data):
    committed = data.draw(st.integers(0, len(model.original)))
    row = partition_move(facts(model, committed))

    assert (row.state == "not_copied") == (committed > model.copied)


@given(logs(drained=True), st.data())
def test_applying_never_goes_back_over_records_a_consumer_on_the_target_has_committed(model, data):
    committed = data.draw(st.integers(0, len(model.original)))
    theirs = data.draw(st.integers(0, len(model.copy)))
    row = partition_move(facts(model, committed, theirs=theirs))

    if row.resume is not None:
        behind = unread(model.copy[:theirs], row.resume) if theirs > row.resume else []
        assert (row.state == "conflict") == bool(behind)
        assert row.re_read == len(behind)


@given(logs(drained=True), st.data())
def test_what_srm_itself_wrote_on_the_target_is_no_conflict(model, data):
    committed = data.draw(st.integers(0, len(model.original)))
    theirs = data.draw(st.integers(0, len(model.copy)))
    row = partition_move(facts(model, committed, theirs=theirs, ours=True))

    assert row.state != "conflict"


def test_past_markers_only_the_consumers_own_commit_on_the_target_stays():
    """After a failback a commit beyond a transaction marker is the same place, not a conflict."""
    model = Logs([0, None, None], [0], 3)
    row = partition_move(facts(model, 1, "reverse", theirs=3))

    assert (row.state, row.resume, row.applied) == ("ready", 3, True)


def test_records_that_the_target_has_dropped_are_counted_as_skipped():
    model = Logs([0, 1, 2, 3], [0, 1, 2, 3], 4)
    row = partition_move(facts(model, 1, target_start=3))

    assert (row.resume, row.skipped) == (3, 2)


def test_a_partition_without_a_commit_is_left_to_the_clients_reset_policy():
    model = Logs([0, 1], [0, 1], 2)
    row = partition_move(facts(model, None, theirs=1))

    assert (row.state, row.resume, row.lag, row.applied) == ("no_commit", None, 2, True)
