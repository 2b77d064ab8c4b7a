"""A translation is proven by the records themselves: no false alarm, and nothing wrong proven."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import event, example, given
from hypothesis import strategies as st
from tests import moves
from tests.unit.engine.copying_records import COPY, ORIGINAL, CopiedTopic

from srm.domain.groups.proof import TranslationClaim, Verdict
from srm.domain.groups.translation import PartitionFacts, translate
from srm.domain.moves.request import MoveRequest
from srm.domain.names import internal_topics
from srm.domain.names.record_headers import RecordSettings
from srm.domain.names.topics import TopicPartition
from srm.engine.groups import checkpoints
from srm.engine.groups.checkpoints import emit, selection_of
from srm.engine.groups.group_sync import sync
from srm.engine.groups.proving import read_proof, verdicts_of
from srm.engine.groups.translate import WantedMaps, logs_of, partition_facts, starts_of
from srm.engine.moves.context import MoveContext
from srm.engine.ports import FlowContext
from srm.errors import AuthorizationError, ConflictError

STEPS = ("write", "write", "write", "copy", "copy", "source marker", "claim", "lose")


def play(steps: Sequence[str], *, distinct: bool = True) -> CopiedTopic:
    """Write, copy, and let things come between as a list of steps says."""
    world = CopiedTopic()
    for number, step in enumerate(steps):
        if step == "write":
            world.write(b"%d" % (number if distinct else number % 2))
        elif step == "copy":
            world.copy(1)
        elif step == "source marker":
            world.p.mark("Topic")
        elif step == "claim":
            world.b.mark("P.Topic")
        elif step == "lose" and world.waiting:
            world.lose()
        elif step in ("keep", "discard") and world.waiting:
            world.leave(step)
    world.put()
    return world


def facts(world: CopiedTopic, offset: int, direction: str = "forward") -> PartitionFacts:
    context = world.forward if direction == "forward" else world.backward
    upstream, downstream = (ORIGINAL, COPY) if direction == "forward" else (COPY, ORIGINAL)
    starts = starts_of(context.source, [upstream]), starts_of(context.target, [downstream])
    wanted = WantedMaps()
    wanted.add(direction, (upstream, starts[0]), (downstream, starts[1]), [offset])
    return partition_facts(
        wanted.load(context),
        direction,
        (upstream, logs_of(context.source, [upstream], starts[0])),
        (downstream, logs_of(context.target, [downstream], starts[1])),
        context.target.alias,
    )


def claim(world: CopiedTopic, offset: int, direction: str = "forward") -> TranslationClaim | None:
    known = facts(world, offset, direction)
    found = translate(known, offset)
    if found.offset is None or found.reached is None:
        return None
    return TranslationClaim(known, found.reached, found.offset, skipped=found.total_skipped > 0)


def verdict(world: CopiedTopic, one: TranslationClaim) -> Verdict:
    context = world.forward if one.facts.direction == "forward" else world.backward
    where = ("g", one.facts.upstream)
    return verdicts_of(context, {where: one})[where]


def read_on(world: CopiedTopic, one: TranslationClaim) -> list[bytes | None]:
    """What a reader downstream gets of what the copy ever had."""
    forward = one.facts.direction == "forward"
    cluster, place = (world.b, COPY) if forward else (world.p, ORIGINAL)
    records, at = [], one.downstream_offset
    while found := cluster.first_records([(place, at)]).get((place, at)):
        if forward or found.offset not in world.lost:
            records.append(found.value)
        at = found.offset + 1
    return records


@given(
    st.lists(st.sampled_from(STEPS), max_size=25),
    st.integers(0, 30),
    st.sampled_from(["forward", "reverse"]),
    st.booleans(),
)
def test_what_is_right_is_proven_wherever_nothing_was_lost(steps, offset, direction, distinct):
    world = play(steps, distinct=distinct)
    end = world.source_end if direction == "forward" else world.target_end
    one = claim(world, min(offset, end), direction)
    if one is None:
        return
    found = verdict(world, one)

    event(found.state)
    assert found.state != "disproved", found
    if not world.lost:
        assert found.state == "proven", found


@given(
    st.lists(st.sampled_from(("write", "write", "copy", "claim", "keep", "discard")), max_size=15),
    st.integers(0, 30),
    st.sampled_from(["forward", "reverse"]),
)
@example(["write", "write", "copy", "discard", "write", "discard"], 1, "reverse")
def test_what_was_left_on_a_returned_source_raises_no_alarm(steps, offset, direction):
    world = play(steps)
    end = world.source_end if direction == "forward" else world.target_end
    one = claim(world, min(offset, end), direction)
    if one is None:
        return
    found = verdict(world, one)

    assert found.state != "disproved", found
    if "keep" not in steps and world.pairs:
        assert found.state == "proven", found


@given(
    st.lists(st.sampled_from(STEPS), max_size=25),
    st.integers(0, 30),
    st.sampled_from(["forward", "reverse"]),
    st.lists(st.tuples(st.sampled_from(["P", "B"]), st.integers(0, 25)), max_size=8),
    st.integers(0, 10),
    st.integers(0, 10),
)
def test_compaction_and_retention_raise_no_alarm(steps, offset, direction, removed, trim_p, trim_b):
    world = play(steps)
    for alias, at in removed:
        cluster, topic = (world.p, "Topic") if alias == "P" else (world.b, "P.Topic")
        cluster.alter_topic_configs({topic: {"cleanup.policy": "compact"}})
        cluster.remove_record(topic, 0, at)
    world.p.trim("Topic", 0, trim_p)
    world.b.trim("P.Topic", 0, trim_b)
    end = world.source_end if direction == "forward" else world.target_end
    one = claim(world, min(offset, end), direction)
    if one is not None:
        found = verdict(world, one)
        event(found.state)
        assert found.state != "disproved", found


@given(
    st.lists(st.sampled_from(STEPS), min_size=3, max_size=25),
    st.integers(0, 30),
    st.sampled_from(["forward", "reverse"]),
    st.integers(-3, 3),
    st.booleans(),
)
@example(["write", "write", "write", "lose", "copy", "copy"], 0, "forward", 1, True)
@example(["write", "write", "write", "lose", "copy", "copy"], 0, "forward", 1, False)
@example(["write", "write", "write", "copy", "lose", "copy"], 1, "reverse", 1, False)
def test_what_leads_to_other_records_is_never_proven(steps, offset, direction, wrong, distinct):
    world = play(steps, distinct=distinct)
    end = world.source_end if direction == "forward" else world.target_end
    right = claim(world, min(offset, end), direction)
    if right is None or right.downstream_offset + wrong < 0:
        return
    one = replace(right, downstream_offset=right.downstream_offset + wrong)
    if read_on(world, one) == read_on(world, right) and distinct:
        return
    if len(read_on(world, one)) == len(read_on(world, right)):
        return
    found = verdict(world, one)

    event(found.state)
    assert found.state != "proven", (one.original, one.copy)


@given(
    st.lists(st.sampled_from(["write", "copy", "claim"]), min_size=4, max_size=25),
    st.integers(0, 30),
    st.sampled_from([-2, -1, 1, 2]),
)
def test_a_map_that_is_off_by_one_is_never_proven(steps, offset, shift):
    world = play(steps)
    offset = min(offset, world.source_end)
    right = claim(world, offset)
    if any(target + shift < 0 for _, target in world.pairs):
        return
    world.put(shift)
    one = claim(world, offset)
    if right is None or one is None or read_on(world, one) == read_on(world, right):
        return

    assert verdict(world, one).state != "proven"


def broken(world: CopiedTopic) -> FlowContext:
    """Ten records, all copied behind a claim; the map says one offset too many."""
    world.b.mark("P.Topic")
    world.write(*(b"%d" % number for number in range(10)))
    world.copy()
    world.put(shift=1)
    return world.forward


def test_a_map_that_is_off_by_one_is_found_and_nothing_of_it_is_emitted():
    world = CopiedTopic()
    context = broken(world)
    world.commit("audit", 4)

    summary = emit(context)

    [wrong] = summary.proof.disproved
    assert (wrong.group, wrong.upstream, wrong.upstream_offset) == ("audit", "Topic-0", 4)
    assert "differ in value, timestamp" in wrong.evidence
    assert world.checkpoints() == []
    assert summary.proof.proven == 0


def test_a_wrong_translation_is_found_with_a_map_that_is_right(monkeypatch):
    world = CopiedTopic()
    world.write(*(b"%d" % number for number in range(10)))
    world.copy()
    world.commit("audit", 4)

    def off_by_one(known, offset):
        found = translate(known, offset)
        return replace(found, offset=found.offset + 1)

    monkeypatch.setattr("srm.domain.groups.checkpoints.translate", off_by_one)
    summary = emit(world.forward)

    assert "would be skipped" in summary.proof.disproved[0].evidence
    assert world.checkpoints() == []


def test_records_that_are_all_alike_do_not_hide_a_wrong_translation(monkeypatch):
    world = CopiedTopic()
    for _ in range(10):
        world.write(b"same")
    world.copy()
    world.commit("audit", 4)
    monkeypatch.setattr(
        "srm.domain.groups.checkpoints.translate",
        lambda known, offset: replace(found := translate(known, offset), offset=found.offset + 1),
    )

    assert emit(world.forward).proof.disproved


def test_the_checkpoints_of_a_wrong_partition_are_withheld_beyond_the_sample():
    world = CopiedTopic(settings={"proof_budget": 1})
    context = broken(world)
    for group in ("audit", "billing", "fraud"):
        world.commit(group, 4)

    first = emit(context)
    second = emit(context)

    assert (first.proof.sampled, first.proof.withheld) == (1, 3)
    assert second.proof.withheld == 3, "the group that was wrong is looked at again"
    assert world.checkpoints() == []


def test_what_is_mended_is_emitted_again():
    world = CopiedTopic()
    context = broken(world)
    world.commit("audit", 4)
    emit(context)

    world.put()
    summary = emit(context)

    assert (summary.proof.disproved, summary.proof.proven) == ((), 1)
    assert world.checkpoints() == [("audit", 4, 5)]


def test_what_only_looked_wrong_for_a_moment_is_not_called_so():
    world = CopiedTopic()
    context = broken(world)
    world.commit("audit", 4)
    loads = world.maps.load
    seen = []

    def load(*arguments):
        seen.append(arguments)
        if len(seen) == 2:
            world.put()
        return loads(*arguments)

    world.maps.load = load
    summary = emit(context)

    assert summary.proof.disproved == ()
    assert (summary.proof.proven, summary.proof.withheld) == (0, 1)
    assert world.checkpoints() == []


def test_groups_take_turns_within_the_budget():
    world = CopiedTopic(settings={"proof_budget": 2})
    world.write(*(b"%d" % number for number in range(10)))
    world.copy()
    for number in range(5):
        world.commit(f"g{number}", number)
    context = world.forward

    cursors = [emit(context).proof.cursor for _ in range(4)]

    assert cursors == ["g1", "g3", "g0", "g2"]
    proof = read_proof(world.b, context.config.flow)
    assert (proof.groups, proof.sampled, proof.proven) == (5, 2, 2)


def test_a_proof_of_any_size_is_kept_in_records_of_bounded_size(monkeypatch):
    """Each of thousands of unproven groups has its reason in it."""
    monkeypatch.setattr("srm.domain.text.documents._LARGEST", 100)
    world = CopiedTopic(settings={"proof_budget": 2})
    world.write(*(b"%d" % number for number in range(10)))
    world.copy()
    world.commit("audit", 5)

    emit(world.forward)

    proof = read_proof(world.b, world.forward.config.flow)
    assert (proof.groups, proof.proven) == (1, 1)
    rows = world.b.compacted_topic(internal_topics.MOVES).read()
    assert max(map(len, rows.values())) <= 100


def test_a_budget_of_nothing_reads_no_record_and_says_so(monkeypatch):
    world = CopiedTopic(settings={"proof_budget": 0})
    context = broken(world)
    world.commit("audit", 4)
    for cluster in (world.p, world.b):
        monkeypatch.setattr(cluster, "first_records", None)

    proof = emit(context).proof

    assert (proof.sampled, proof.proven) == (0, 0)
    assert "checkpoints.proof.budget is 0" in proof.skipped


def test_a_source_that_may_not_be_read_leaves_the_checkpoints_unproven_not_unwritten(monkeypatch):
    world = CopiedTopic()
    world.write(b"0", b"1")
    world.copy()
    world.commit("audit", 1)

    def refuse(*_arguments, **_named):
        raise AuthorizationError("grant Read on topic Topic")

    monkeypatch.setattr(world.p, "first_records", refuse)
    summary = emit(world.forward)

    assert summary.proof.proven == 0
    assert "grant Read" in summary.proof.unproven["audit"]
    assert world.checkpoints() == [("audit", 1, 1)]


def test_headers_that_the_flow_adds_and_a_time_of_the_brokers_own_are_no_difference():
    world = CopiedTopic()
    world.write(b"0", headers=(("trace", b"1"),))
    [record] = world.waiting
    added = (("trace", b"1"), ("__source_offsets", b'{"P":0}'), ("whence", b"id,Topic,17"))
    world.waiting = [record._replace(headers=added, timestamp_ms=9, by_broker=True)]
    world.copy()
    world.commit("audit", 0)

    assert emit(world.forward).proof.proven == 1


@pytest.mark.parametrize("field", ["key", "value", "headers", "timestamp_ms"])
def test_each_part_of_a_record_counts(field):
    world = CopiedTopic()
    world.write(b"0", headers=(("trace", b"1"),))
    other = {"headers": (("trace", b"2"),), "timestamp_ms": 5}.get(field, b"other")
    world.waiting = [world.waiting[0]._replace(**{field: other})]
    world.copy()
    world.commit("audit", 0)

    assert emit(world.forward).proof.disproved


def test_records_left_out_by_their_headers_are_not_missed():
    settings = RecordSettings(exclude_headers=("secret",))
    world = CopiedTopic(settings={"records": settings})
    world.write(b"0")
    world.write(b"1", headers=(("secret", b""),))
    world.write(b"2")
    del world.waiting[1]
    world.copy()
    world.commit("audit", 1)

    assert emit(world.forward).proof.proven == 1


def test_a_record_that_was_not_copied_and_never_noted_is_found():
    world = CopiedTopic()
    world.write(b"0", b"1", b"2")
    del world.waiting[1]
    world.copy()
    world.commit("audit", 1)

    assert "no loss was noted" in emit(world.forward).proof.disproved[0].evidence


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_a_copy_of_an_aborted_record_is_no_wrong_translation(isolation):
    """MirrorMaker 2 has copied it, or the flow itself under its former isolation level."""
    world = CopiedTopic(settings={"isolation_level": isolation})
    world.write(b"0")
    world.p.produce_in("tx", "Topic", 0, 1)
    world.p.end_transaction("tx", commit=False)
    world.waiting.append(world.waiting[0]._replace(offset=1, key=None, value=b"", timestamp_ms=0))
    world.write(b"3")
    world.copy()
    world.commit("audit", 1)

    proof = emit(world.forward).proof

    assert (proof.proven, proof.disproved) == (1, ())
    one = claim(world, 1)
    assert one is not None
    assert verdict(world, replace(one, downstream_offset=0)).state == "disproved"


def test_a_group_is_proven_only_with_all_of_its_partitions():
    world = CopiedTopic()
    world.write(b"0")
    world.copy()
    world.p.add_topic("Topic.never")
    world.commit("audit", 0)
    world.p.commit("audit", {TopicPartition("Topic.never", 0): 0})

    proof = emit(world.forward).proof

    assert (proof.sampled, proof.proven) == (1, 0)
    assert "Topic.never-0" in proof.unproven["audit"]


def test_shadow_groups_are_nobodys():
    world = CopiedTopic()
    world.write(b"0")
    world.copy()
    world.commit("srm-drill.x.audit", 0)

    assert emit(world.forward).groups == 0
    assert not selection_of(world.forward.config).groups.matches("srm-drill.x.audit")
    assert checkpoints.survey(world.forward, ["srm-drill.x.audit"]).outcomes == ()


def test_reverse_checkpoints_are_proven_too():
    world = CopiedTopic()
    world.write(b"0", b"1", b"2")
    world.copy()
    world.b.commit("audit", {COPY: 2})

    assert emit(world.backward).proof.proven == 1
    copies = [target for _, target in world.pairs[1:]]
    world.pairs = [
        (source, target) for (source, _), target in zip(world.pairs, copies, strict=False)
    ]
    world.put()
    assert emit(world.backward).proof.disproved


def test_offsets_of_idle_groups_are_not_written_where_a_translation_is_wrong():
    world = CopiedTopic()
    context = broken(world)
    world.commit("audit", 4)
    emit(context)

    summary = sync(context)

    assert world.b.committed_offsets("audit") == {}
    assert "disproved" in summary.errors["audit"]
    world.put()
    emit(context)
    sync(context)
    assert world.b.committed_offsets("audit") == {COPY: 5}


def moving(world: CopiedTopic) -> tuple[MoveContext, MoveRequest]:
    context = MoveContext(world.forward, world.backward, lambda: world.clock() / 1000)
    return context, MoveRequest("failover", "P", "B", ("Topic",), ("audit",))


def test_a_move_does_not_start_where_a_translation_is_wrong():
    world = CopiedTopic(settings={"proof_budget": 0})
    broken(world)
    world.commit("audit", 4)
    context, request = moving(world)

    [problem] = moves.plan(context, request, "m1").blocking

    assert "group audit, Topic-0: the records show that its translation is wrong" in problem
    with pytest.raises(ConflictError, match="differ in value"):
        moves.hold(context, "m1")
    world.put()
    assert moves.plan(context, request, "m2").blocking == ()
