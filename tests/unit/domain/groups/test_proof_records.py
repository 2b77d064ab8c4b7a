"""What was proven of a flow's checkpoints: a record of bounded size that still says what counts."""

from __future__ import annotations

from srm.domain.groups.proof import MOST_NAMED, Disproof, FlowProof


def test_each_partition_with_a_wrong_translation_is_named_however_many_groups_read_another() -> (
    None
):
    """Group offset sync writes nothing in those, and it knows them from the record alone."""
    many = tuple(Disproof(f"g{n}", "A-0", n, "P.A-0", n, "evidence") for n in range(MOST_NAMED + 9))
    proof = FlowProof("P->B", 1, disproved=(*many, Disproof("z", "B-3", 1, "P.B-3", 1, "other")))

    known = FlowProof.decode(proof.value())

    assert known.wrong_partitions == {"A-0", "B-3"}
    assert len(known.disproved) == MOST_NAMED


def test_groups_that_a_silent_cluster_left_unproven_are_shown_with_its_silence() -> None:
    """An overview of a dead site had '0 of 4 groups proven' alone, as if they were wrong."""
    silent = {"g1": "t-0: cluster P: no answer within 3 s", "g2": "t-1: other"}
    proof = FlowProof("P->B", 0, groups=2, sampled=2, unproven=silent)

    assert proof.line(2000) == "0 of 2 groups proven 2 s ago: t-0: cluster P: no answer within 3 s"
    some = FlowProof("P->B", 0, groups=2, sampled=2, proven=1, unproven=silent)
    assert some.line(2000) == "1 of 2 groups proven 2 s ago"
