"""Emitting checkpoints: what is read, what is written, and what a failure hides (nothing)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest
from tests.overrides import overrides

from srm.cli.flows.groups import require_selected
from srm.domain.groups.group_sync import LedgerEntry
from srm.domain.groups.mm2_records import Checkpoint
from srm.domain.metrics import CheckpointMetric, Measured, decode_measured
from srm.domain.names import internal_topics
from srm.domain.names.topics import TopicPartition
from srm.engine.cluster_ports import TopicSpec
from srm.engine.groups.checkpoints import CheckpointSummary, emit, survey, texts
from srm.engine.ports import FlowContext
from srm.errors import AuthorizationError, UnavailableError, UsageError

GROUP = "billing"


def checkpoints_on_target(context: FlowContext) -> list[Checkpoint]:
    topic = internal_topics.checkpoints(context.config.flow.source)
    records = context.target.compacted_topic(topic).read()
    return [Checkpoint.decode(key, value) for key, value in records.items()]


def ids(sites, upstream: str) -> str:
    """Metadata of a checkpoint of P->B, by the topic on P."""
    downstream = "Payments" if upstream == "B.Payments" else f"P.{upstream}"
    source, target = sites.clusters["P"].topics(), sites.clusters["B"].topics()
    return f"srm:{source[upstream].topic_id}:{target[downstream].topic_id}"


def test_forward_and_reverse_checkpoints_go_to_one_topic(sites) -> None:
    sites.commit("P", GROUP, "Payments", 40)
    sites.commit("P", GROUP, "B.Payments", 20)
    context = sites.flow("P->B")

    summary = emit(context)

    assert (summary.written, summary.states, summary.errors) == (2, {"translated": 2}, {})
    assert checkpoints_on_target(context) == [
        Checkpoint(GROUP, TopicPartition("Payments", 0), 20, 20, ids(sites, "B.Payments")),
        Checkpoint(GROUP, TopicPartition("P.Payments", 0), 40, 41, ids(sites, "Payments")),
    ]


def test_the_topic_is_compacted_with_one_partition(sites) -> None:
    sites.commit("P", GROUP, "Payments", 40)

    emit(sites.flow("P->B"))

    topic = sites.clusters["B"].topics()[internal_topics.checkpoints("P")]
    configs = overrides(sites.clusters["B"], [topic.name])[topic.name]
    assert (topic.partitions, configs["cleanup.policy"]) == (1, "compact")


def test_a_second_run_writes_only_what_changed(sites) -> None:
    sites.commit("P", GROUP, "Payments", 40)
    sites.commit("P", "audit", "Payments", 10)
    context = sites.flow("P->B")
    emit(context)
    sites.commit("P", "audit", "Payments", 11)

    summary = emit(context)

    assert (summary.written, summary.unchanged) == (1, 1)


def test_a_rewind_on_the_source_is_emitted(sites) -> None:
    context = sites.flow("P->B")
    for offset in (40, 5):
        sites.commit("P", GROUP, "Payments", offset)
        emit(context)

    [checkpoint] = checkpoints_on_target(context)

    assert (checkpoint.upstream_offset, checkpoint.downstream_offset) == (5, 6)


def test_a_dry_run_says_what_it_would_write_and_writes_nothing(sites) -> None:
    sites.commit("P", GROUP, "Payments", 40)
    context = sites.flow("P->B")

    summary = emit(context, dry_run=True)

    assert (summary.written, summary.dry_run) == (1, True)
    assert internal_topics.checkpoints("P") not in sites.clusters["B"].topics()


def test_a_group_that_reads_only_the_replica_is_found(sites) -> None:
    """KIP-1098's code drops such a group: it looks at the forward topic filter only."""
    sites.commit("B", GROUP, "P.Payments", 31)

    [outcome] = survey(sites.flow("B->P")).outcomes

    assert (outcome.direction, outcome.downstream_offset) == ("reverse", 30)


def test_groups_and_topics_that_nothing_selects_are_left_out(sites) -> None:
    sites.change("P->B", groups=("bill.*",))
    sites.commit("P", "other", "Payments", 40)
    sites.commit("P", "billing-else", "Elsewhere", 40)
    sites.commit("P", "console-consumer-1", "Payments", 1)

    assert survey(sites.flow("P->B")).outcomes == ()


def test_only_the_groups_asked_for_are_translated_and_unselected_ones_named(sites) -> None:
    sites.change("P->B", groups=("bill.*",))
    for group in (GROUP, "billing-2", "other"):
        sites.commit("P", group, "Payments", 40)

    summary = emit(sites.flow("P->B"), groups=[GROUP, "other"])

    assert [outcome.group for outcome in summary.outcomes] == [GROUP]
    assert list(summary.errors) == ["other"]
    assert "srm why other" in summary.errors["other"]


def test_a_named_group_that_the_flow_does_not_select_is_bad_input_for_commands(sites) -> None:
    sites.change("P->B", groups=("bill.*",))
    sites.commit("P", "other", "Payments", 40)

    with pytest.raises(UsageError, match="other: group not selected: srm why other"):
        require_selected(sites.flow("P->B"), ["other"])


def test_a_group_that_is_named_is_asked_for_even_if_no_broker_lists_it(
    sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the right to describe a group it looks absent."""
    context = sites.flow("P->B")
    context = replace(context, config=replace(context.config, groups=("hidden", "absent")))

    def refuse(group: str) -> dict[TopicPartition, int]:
        if group == "absent":
            return {}
        raise AuthorizationError("grant Describe on group hidden")

    monkeypatch.setattr(sites.clusters["P"], "committed_offsets", refuse)

    summary = emit(context)

    assert summary.errors == {"hidden": "grant Describe on group hidden"}


def test_a_group_that_cannot_be_read_does_not_hide_the_others(
    sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    for group in ("bad", GROUP):
        sites.commit("P", group, "Payments", 40)
    committed = sites.clusters["P"].committed_offsets

    def refuse_one(group: str) -> dict[TopicPartition, int]:
        if group == "bad":
            raise AuthorizationError("no right to describe group 'bad'")
        return committed(group)

    monkeypatch.setattr(sites.clusters["P"], "committed_offsets", refuse_one)

    summary = emit(sites.flow("P->B"))

    assert (summary.written, summary.groups) == (1, 1)
    assert summary.errors == {"bad": "no right to describe group 'bad'"}
    assert texts(survey(sites.flow("P->B")).errors) == summary.errors


def test_a_cluster_that_is_down_is_an_error_of_the_run(sites) -> None:
    sites.commit("P", GROUP, "Payments", 40)
    sites.clusters["P"].fail()

    with pytest.raises(UnavailableError):
        emit(sites.flow("P->B"))


def test_switched_off_it_does_nothing_and_says_so(sites) -> None:
    sites.change("P->B", emit_checkpoints_enabled=False)
    sites.commit("P", GROUP, "Payments", 40)

    summary = emit(sites.flow("P->B"))

    assert isinstance(summary, CheckpointSummary)
    assert summary.skipped == "P->B.emit.checkpoints.enabled is false"
    assert internal_topics.checkpoints("P") not in sites.clusters["B"].topics()


def test_a_group_ahead_of_the_copy_keeps_the_pair_where_the_copy_ends(sites) -> None:
    sites.produce("P", 10)
    sites.commit("P", GROUP, "Payments", 108)
    context = sites.flow("P->B")

    summary = emit(context)

    assert summary.states == {"not-copied-yet": 1}
    assert summary.outcomes[0].remaining == 8
    assert checkpoints_on_target(context) == [
        Checkpoint(GROUP, TopicPartition("P.Payments", 0), 100, 101, ids(sites, "Payments"))
    ]


def test_an_own_write_of_the_opposite_flow_is_emitted_too(sites) -> None:
    """Else MM2's topic would say for ever where the group stood before it went away and back."""
    sites.commit("P", GROUP, "Payments", 10)
    emit(sites.flow("P->B"))
    sites.commit("P", GROUP, "Payments", 40)
    topic_id = sites.clusters["P"].topics()["Payments"].topic_id
    entry = LedgerEntry(GROUP, TopicPartition("Payments", 0), topic_id, 10, 40, "B", "sync")
    sites.clusters["P"].add_topic(internal_topics.LEDGER)
    sites.clusters["P"].compacted_topic(internal_topics.LEDGER).write({entry.key(): entry.value()})

    summary = emit(sites.flow("P->B"))

    assert (summary.states, summary.written) == ({"translated": 1}, 1)
    [checkpoint] = checkpoints_on_target(sites.flow("P->B"))
    assert checkpoint.downstream_offset == 41


def test_the_checkpoint_of_a_share_group_says_its_kind(sites) -> None:
    """A move without the source creates the group on the target by it."""
    sites.commit("P", "queue", "Payments", 40)
    sites.clusters["P"].share("queue", {})

    emit(sites.flow("P->B"))

    [checkpoint] = checkpoints_on_target(sites.flow("P->B"))
    assert (checkpoint.downstream_offset, checkpoint.is_share) == (41, True)
    assert checkpoint.topic_ids is not None


def test_a_live_streams_group_is_checkpointed(sites) -> None:
    sites.clusters["P"].join(GROUP, kind="streams")
    sites.commit("P", GROUP, "Payments", 40)

    assert [outcome.group for outcome in survey(sites.flow("P->B")).outcomes] == [GROUP]


def test_maps_that_cannot_be_used_stop_only_their_partition(sites) -> None:
    sites.commit("P", GROUP, "Payments", 40)
    sites.commit("P", GROUP, "B.Payments", 20)
    sites.maps[sites.flow("P->B").config.flow].errors[TopicPartition("Payments", 0)] = "damaged"

    summary = emit(sites.flow("P->B"))

    assert summary.states == {"damaged-map": 1, "translated": 1}


def told(context: FlowContext) -> list[Measured]:
    topic = internal_topics.raw_metrics(context.config.flow.source)
    table = context.target.compacted_topic(topic)
    found: list[Measured] = []
    table.scan(lambda _, key, value: found.extend(decode_measured(value or b"")))
    return found


def test_checkpoints_took_from_the_look_at_the_groups_until_they_were_acknowledged(
    sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites.commit("P", GROUP, "Payments", 40)
    sites.commit("P", GROUP, "B.Payments", 20)
    sites.commit("P", "other", "Payments", 10)
    context = sites.flow("P->B")
    commits_of = context.source.commits_of

    def slow(groups: Collection[str]) -> object:
        sites.clock.advance(750)
        return commits_of(groups)

    monkeypatch.setattr(context.source, "commits_of", slow)
    began_ms = sites.clock()

    emit(context)

    moment = (began_ms + 750, 750, "P", "B")
    assert told(context) == [
        CheckpointMetric(*moment, "B.Payments", "Payments", 750, 750, 750, 1),
        CheckpointMetric(*moment, "Payments", "P.Payments", 750, 750, 1500, 2),
    ]


def test_checkpoints_that_were_there_already_took_no_time(sites) -> None:
    sites.commit("P", GROUP, "Payments", 40)
    context = sites.flow("P->B")
    emit(context)

    emit(context)

    assert len(told(context)) == 1


def test_checkpoints_are_written_though_nobody_may_tell_how_long_they_took(
    sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites.commit("P", GROUP, "Payments", 40)
    context = sites.flow("P->B")
    create = sites.clusters["B"].create_topics

    def refuse(specs: Collection[TopicSpec]) -> None:
        if any(spec.name.startswith("srm-metrics-") for spec in specs):
            raise AuthorizationError("no right Create on cluster B")
        create(specs)

    monkeypatch.setattr(sites.clusters["B"], "create_topics", refuse)

    assert emit(context).written == 1
