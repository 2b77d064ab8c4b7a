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
