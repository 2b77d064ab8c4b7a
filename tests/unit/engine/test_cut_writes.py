"""A kill while a large document is replaced leaves the former one or the new one, readable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.unit.engine.copying_records import CopiedTopic

from srm.domain.groups.proof import FlowProof
from srm.domain.moves.disaster import Drill, Outcome
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow
from srm.domain.text.documents import join
from srm.engine.drill import write_drill
from srm.engine.groups.proving import keep_proof
from srm.engine.recovery import store_outcome

Write = Callable[[CopiedTopic, str], object]
WRITERS: dict[bytes, Write] = {
    b"outcome:m1": lambda world, by: store_outcome(
        world.forward, Outcome("m1", "P->B", "same", 1, by=by)
    ),
    b"drill:d1": lambda world, by: write_drill(
        world.b, drill := Drill("d1", "P->B", "done", 1, by, 1), forget=(drill,)
    ),
    FlowProof.key(Flow("P", "B")): lambda world, by: keep_proof(
        world.forward, replace(FlowProof("P->B", 1), skipped=by)
    ),
}


@pytest.mark.parametrize("key", WRITERS)
def test_a_document_that_is_replaced_is_readable_after_each_of_its_records(
    key: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("srm.domain.text.documents._LARGEST", 100)
    world = CopiedTopic()
    world.b.add_topic(internal_topics.MOVES)
    WRITERS[key](world, "a" * 1_000)
    moves = world.b.compacted_topic(internal_topics.MOVES)
    before, count = join(moves.read())[key], len(moves.require().rows())

    WRITERS[key](world, "b" * 900)

    after, rows = join(moves.read())[key], moves.require().rows()
    assert before != after
    for cut in range(count, len(rows) + 1):
        table = {of: value for _, of, value in rows[:cut]}
        kept = join({of: value for of, value in table.items() if value is not None})
        assert kept[key] in (before, after)
    assert len(moves.read()) < count, "the parts of the former one are gone"
