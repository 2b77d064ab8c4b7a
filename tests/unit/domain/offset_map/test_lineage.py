"""The leader epochs of a log, as they are read, cut and kept."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from srm.domain.offset_map.runs import MOST_EPOCHS, UNKNOWN_LINEAGE, EpochRange, Lineage

steps = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 5)), max_size=2 * MOST_EPOCHS)


def log_of(history: list[tuple[int, int]]) -> tuple[list[int], Lineage]:
    """Return the epoch of each offset of a log, and its lineage as it is read."""
    epochs: list[int] = []
    lineage, epoch = UNKNOWN_LINEAGE, -1
    for later, count in history:
        epoch += later
        lineage = lineage.with_epoch(epoch, len(epochs))
        epochs += [epoch] * count
    return epochs, lineage


@given(steps)
def test_a_lineage_has_the_latest_epochs_and_where_they_begin(
    history: list[tuple[int, int]],
) -> None:
    epochs, lineage = log_of(history)

    begins = [(e, at) for at, e in enumerate(epochs) if not at or epochs[at - 1] != e]
    assert lineage.starts == tuple(begins)
    assert lineage.before(len(epochs)).starts == tuple(begins[-MOST_EPOCHS:])
    assert lineage.epoch == (epochs[-1] if epochs else -1)


@given(steps, st.data())
def test_a_lineage_before_an_offset_is_that_of_the_log_cut_there(
    history: list[tuple[int, int]], data: st.DataObject
) -> None:
    epochs, lineage = log_of(history)
    at = data.draw(st.integers(0, len(epochs)))

    cut = lineage.before(at)

    assert cut.starts == tuple(one for one in lineage.starts if one[1] < at)[-MOST_EPOCHS:]
    if at > lineage.begin:
        assert cut.epoch == epochs[at - 1]
    for epoch, start, end, _ in cut.latest_first(at):
        assert set(epochs[start:end]) == {epoch}


def test_an_epoch_of_another_log_replaces_all_that_it_cannot_follow() -> None:
    """As an entry of a broker's leader epoch cache does."""
    lineage = Lineage(((0, 0), (3, 50), (4, 100)))

    assert lineage.with_epoch(4, 150) == lineage
    assert lineage.with_epoch(5, 100) == Lineage(((0, 0), (3, 50), (5, 100)))
    assert lineage.with_epoch(3, 120) == Lineage(((0, 0), (3, 120)))


def test_an_epoch_that_was_not_read_fits_between_known_ones() -> None:
    lineage = Lineage(((0, 0), (3, 50)))

    assert lineage.with_unread(2, 20) == Lineage(((0, 0), (2, 20), (3, 50)))
    assert lineage.with_unread(4, 60) == Lineage(((0, 0), (3, 50), (4, 60)))
    assert lineage.with_unread(3, 20) == Lineage(((0, 0), (3, 20)))
    assert lineage.with_unread(4, 20) is None
    assert lineage.with_unread(2, 50) is None
    assert lineage.with_unread(0, 20) is None


def test_an_epoch_of_a_leader_that_wrote_nothing_gives_way_to_that_of_the_next_batch() -> None:
    noted = Lineage(((0, 0),)).with_leader(3, 50)

    assert noted == Lineage(((0, 0), (3, 50)))
    assert noted.with_unread(4, 50) == Lineage(((0, 0), (4, 50)))
    assert noted.with_leader(6, 80).with_unread(4, 50) == Lineage(((0, 0), (4, 50), (6, 80)))
    assert noted.with_leader(6, 80).with_unread(7, 50) is None


def test_a_batch_without_an_epoch_leaves_nothing_known() -> None:
    assert Lineage(((0, 0), (3, 50))).with_epoch(-1, 80) == UNKNOWN_LINEAGE


def test_where_reading_began_within_an_epoch_its_start_is_not_known() -> None:
    assert list(Lineage(((2, 7), (4, 9))).latest_first(12)) == [
        EpochRange(4, 9, 12),
        EpochRange(2, 7, 9, is_exact=False),
    ]
    assert list(Lineage(((2, 0),)).latest_first(3)) == [EpochRange(2, 0, 3)]
