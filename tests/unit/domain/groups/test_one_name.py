"""Translation where two flows copy into one name, each to the other cluster.

P has written p0..p9 and B b0..b4. The logs have different orders::

    P    p0 p1 p2 p3 p4 b0 b1 b2 b3 b4 p5 p6 p7 p8 p9     offsets 0..14
    B    b0 b1 b2 b3 b4 p0 p1 p2 p3 p4 p5 p6 p7 p8 p9     offsets 0..14
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srm.domain.flow_state.replication_records import PartitionNotes
from srm.domain.groups.proof import TranslationClaim, by_flow, pair_problem, unread_pair
from srm.domain.groups.translation import LogRange, Losses, PartitionFacts, translate
from srm.domain.moves.plan import GroupPosition, partition_move
from srm.domain.names.topics import TopicPartition
from srm.domain.offset_map.offset_map import OffsetMap, Position, Run
from srm.domain.verification.compared_record import ComparedRecord

PLACE = TopicPartition("T", 0)
ON_P = [
    *(f"p{n}" for n in range(5)),
    *(f"b{n}" for n in range(5)),
    *(f"p{n}" for n in range(5, 10)),
]
ON_B = [*(f"b{n}" for n in range(5)), *(f"p{n}" for n in range(10))]


def mapped(own: str, there: list[str], here: list[str], examined: int) -> OffsetMap:
    """Return the map of the records that a cluster wrote itself."""
    runs = [
        Run(offset, here.index(value), 1)
        for offset, value in enumerate(there[:examined])
        if value.startswith(own) and value in here
    ]
    return OffsetMap.of(runs, Position(examined, len(here), len(there)), open_end=False)


def facts(p: list[str] = ON_P, b: list[str] = ON_B, examined: int | None = None) -> PartitionFacts:
    logs = LogRange(0, len(p), len(p)), LogRange(0, len(b), len(b))
    back = mapped("b", b, p, len(b) if examined is None else examined)
    sides = PLACE, PLACE, "B", *logs
    return PartitionFacts(
        "forward", *sides, mapped("p", p, b, len(p)), back=PartitionFacts("reverse", *sides, back)
    )


def test_a_group_continues_at_the_first_record_of_either_cluster_that_it_has_not_read() -> None:
    for read in range(len(ON_P) + 1):
        unread = [at for at, value in enumerate(ON_B) if value not in ON_P[:read]]

        found = translate(facts(), read)

        assert (found.state, found.offset) == ("translated", min(unread, default=len(ON_B))), read


@pytest.mark.parametrize("is_ours", [True, False])
def test_no_record_of_either_cluster_is_passed_because_of_an_offset_on_the_target(
    is_ours: bool,
) -> None:
    """A rewind on the source counts for the target's own records, too."""
    for read in range(len(ON_P) + 1):
        unread = [at for at, value in enumerate(ON_B) if value not in ON_P[:read]]
        exact = min(unread, default=len(ON_B))
        for theirs in range(len(ON_B) + 1):
            row = partition_move(GroupPosition(facts(), read, theirs, is_ours))

            assert row.resume == exact, (read, theirs)
            assert (row.state == "conflict") == (theirs > exact and not is_ours)


@pytest.mark.parametrize("first", [ON_P, ON_B, ["b0", "p0", "b1", *ON_P[1:5], "b2", "b3", "b4"]])
def test_there_and_back_a_group_skips_nothing_and_meets_no_conflict(first: list[str]) -> None:
    """``first`` is the order of P's log; B's has B's records first."""
    own = {name: [one for one in first if one[0] == name] for name in "pb"}
    p, b = first, [*own["b"], *own["p"]]
    logs = LogRange(0, len(p), len(p)), LogRange(0, len(b), len(b))
    there, back = mapped("p", p, b, len(p)), mapped("b", b, p, len(b))
    sides, home = (PLACE, PLACE, "B", *logs), (PLACE, PLACE, "P", *logs[::-1])
    leaves = PartitionFacts("forward", *sides, there, back=PartitionFacts("reverse", *sides, back))
    returns = PartitionFacts("forward", *home, back, back=PartitionFacts("reverse", *home, there))

    for left in range(len(p) + 1):
        at = translate(leaves, left).offset
        assert at is not None
        for read in range(at, len(b) + 1):
            group = GroupPosition(returns, read, left, target_is_ours=False, was_there=True)
            row = partition_move(group)

            assert row.state == "translated"
            assert row.resume is not None
            assert row.resume >= left
            assert set(p[: row.resume]) <= {*p[:left], *b[:read]}, (left, at, read)
            again = {*p[row.resume :]} & {*p[:left], *b[:read]}
            assert row.re_read == len(again), (left, at, read)


def test_a_group_that_goes_back_reads_what_was_kept_there_unless_it_has_passed_that() -> None:
    """B died with b3 and b4, which were kept on it; P copied p5 to p9 to B after its return."""
    p = [one for one in ON_P if one not in {"b3", "b4"}]
    b = ["b0", "b1", "b2", *ON_P[:5], "b3", "b4", *ON_P[10:], "b5"]
    p = [*p, "b5"]
    known = facts(p, b)
    assert known.back is not None
    losses = Losses.of(
        [PartitionNotes.from_decision("keep", "r", ("T", 0, "id"), (8, 10), "kept", 0)], None
    )
    known = replace(known, back=replace(known.back, losses=losses))

    for read in range(len(p) + 1):
        passed = {"b3", "b4"} if "b5" in p[:read] else set[str]()
        unread = [at for at, value in enumerate(b) if value not in {*p[:read], *passed}]

        found = translate(known, read)
        row = partition_move(GroupPosition(known, read, None, target_is_ours=False))

        assert (found.state, found.offset) == ("translated", min(unread, default=len(b))), read
        assert (row.passed_kept, row.not_there) == (len(passed), 0)
    on_b = partition_move(GroupPosition(known, len(p) - 1, 9, target_is_ours=False))
    assert on_b.resume == 9, "it has read b3 on B"


def test_records_that_the_opposite_flow_has_not_examined_are_not_skipped() -> None:
    found = translate(facts(b=[*ON_B, "b5"], examined=10), len(ON_P))

    assert (found.state, found.offset) == ("map-behind", 10)


def test_without_a_report_of_the_opposite_flow_there_is_no_translation() -> None:
    known = facts()
    assert known.back is not None

    found = translate(replace(known, back=replace(known.back, offset_map=OffsetMap())), 3)

    assert (found.state, found.offset) == ("map-behind", None)


def test_while_the_log_has_lost_its_end_no_offset_is_translated() -> None:
    known = facts()
    assert known.back is not None
    short = LogRange(0, 12, 12)
    back = replace(known.back, upstream_log=short)

    found = translate(replace(known, upstream_log=short, back=back), 12)

    assert (found.state, found.offset) == ("map-behind", None)
    assert "T-0 ends at 12, before the end of its map" in found.reason


def test_copies_at_the_begin_of_a_log_are_not_missing_from_the_other() -> None:
    p = [*(f"b{n}" for n in range(5)), "p0", "p1"]

    found = translate(facts(p, [*(f"b{n}" for n in range(5)), "p0", "p1"]), 2)

    assert (found.state, found.offset, found.uncopied, found.dropped) == ("translated", 2, 0, 0)


def test_copies_after_what_a_flow_has_examined_are_no_records_to_copy() -> None:
    p, b = ["p0", "b0", "b1", "p1"], ["p0", "b0", "b1"]
    known = replace(facts(p, b), offset_map=mapped("p", p, b, 1))

    assert known.records_upstream(0, 4) == 2


def test_unread_records_that_retention_has_deleted_on_the_target_are_counted() -> None:
    known = facts()
    log = LogRange(3, len(ON_B), len(ON_B))
    assert known.back is not None
    known = replace(known, downstream_log=log, back=replace(known.back, downstream_log=log))

    found = translate(known, 6)

    assert (found.state, found.offset, found.dropped) == ("translated", 3, 2)
    assert found.reason == "2 records of B already deleted by retention there"
    gone = LogRange(8, len(ON_P), len(ON_P))
    assert translate(replace(known, upstream_log=gone), 6).dropped == 0


@given(st.data())
def test_no_translation_skips_a_record_or_hides_one_that_is_read_again(
    data: st.DataObject,
) -> None:
    own = {name: [f"{name}{n}" for n in range(data.draw(st.integers(0, 6)))] for name in "pb"}
    copied = {name: data.draw(st.integers(0, len(own[name]))) for name in "pb"}

    def log(first: list[str], second: list[str]) -> list[str]:
        queues, found = [list(first), list(second)], list[str]()
        while any(queues):
            at = data.draw(st.integers(0, 1))
            found.append((queues[at] or queues[1 - at]).pop(0))
        return found

    p = log(own["p"], own["b"][: copied["b"]])
    b = log(own["b"], own["p"][: copied["p"]])
    seen = {
        "p": p.index(own["p"][copied["p"]]) if copied["p"] < len(own["p"]) else len(p),
        "b": b.index(own["b"][copied["b"]]) if copied["b"] < len(own["b"]) else len(b),
    }
    logs = LogRange(0, len(p), len(p)), LogRange(0, len(b), len(b))
    sides = PLACE, PLACE, "B", *logs
    known = PartitionFacts(
        "forward",
        *sides,
        mapped("p", p, b, seen["p"]),
        back=PartitionFacts("reverse", *sides, mapped("b", b, p, seen["b"])),
    )

    for read in range(len(p) + 1):
        found = translate(known, read)
        if found.offset is not None:
            skipped = set(b[: found.offset]) - set(p[:read])
            assert not skipped, (p, b, read, found)
        if found.state == "translated":
            again = set(b[found.offset :]) & set(p[:read])
            assert found.re_read == len(again), (p, b, read, found)


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[str], list[str]]:
    """Draw both logs: each has the records of each cluster in their order."""
    own = {name: [f"{name}{n}" for n in range(draw(st.integers(0, 6)))] for name in "pb"}
    names = [name for name in own for _ in own[name]]
    orders = [draw(st.permutations(names)) for _ in range(2)]
    left = [{name: iter(some) for name, some in own.items()} for _ in orders]
    p, b = ([next(of[name]) for name in order] for order, of in zip(orders, left, strict=True))
    return p, b


def problems(p: list[str], b: list[str], read: int, start: int, other: str = "") -> list[str]:
    """Return why the records do not prove a claim; the record ``other`` differs on B."""

    def record(log: list[str], offset: int) -> ComparedRecord:
        value = f"{log[offset]}?" if log is b and log[offset] == other else log[offset]
        return ComparedRecord(offset, None, value.encode(), (), 0)

    found = []
    for one in by_flow(TranslationClaim(facts(p, b), read, start)):
        if (pair := unread_pair(one)) is not None:
            there, here = (p, b) if one.facts.direction == "forward" else (b, p)
            records = record(there, pair.original), record(here, pair.copy)
            found.append(pair_problem(one, pair, records))
    return [problem for problem in found if problem]


@given(logs(), st.data())
def test_the_next_record_of_each_flow_shows_whether_one_is_skipped(
    sides: tuple[list[str], list[str]], data: st.DataObject
) -> None:
    p, b = sides
    read = data.draw(st.integers(0, len(p)))
    exact = translate(facts(p, b), read).offset
    assert exact is not None

    for start in range(len(b) + 1):
        assert bool(problems(p, b, read, start)) == (start > exact), (read, start)


def test_a_next_record_that_differs_from_its_copy_is_named() -> None:
    [problem] = problems(ON_P, ON_B, 10, 10, other="p5")

    assert problem == "the record at 10 of T-0 differs from its copy at 10 in value"
