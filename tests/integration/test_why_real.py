"""``srm why`` on real brokers: lists, names, rights and groups as they come."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from click.testing import Result
from tests.identities import identity_provider
from tests.integration.rights import Right, documented
from tests.integration.securing import SecuredBroker
from tests.integration.test_checkpoints_real import Copied, _application, copied, sites
from tests.integration.test_rights import Srm, srm_with
from tests.waiting import DEADLINE_S, eventually
from typer.testing import CliRunner

from srm.cli.main import app
from srm.domain import internal_topics
from srm.domain.topics import TopicPartition
from srm.engine import control_lists
from srm.engine.checkpoints import emit
from srm.engine.compacted import ensure_compacted
from srm.engine.control_lists import ListChange
from srm.engine.ports import TopicSpec
from srm.engine.why import Step, Why, why_topic
from srm.kafka.cluster import KafkaCluster

pytestmark = [pytest.mark.kafka, pytest.mark.integration]
__all__ = ["copied", "sites"]


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy broker is slow, not away."""
    monkeypatch.setattr("srm.cli.why.PATIENCE_S", DEADLINE_S)


def run(copied: Copied, *command: str) -> Result:
    there = copied.sites.there
    return CliRunner().invoke(
        app, ["why", *command, "--config", str(copied.sites.path), "--flow", str(there)]
    )


def asked(copied: Copied, name: str) -> dict:
    """Return the one answer of the command."""
    result = run(copied, name, "--json")
    assert result.exit_code == 0, result.output
    [answer] = json.loads(result.output)
    return answer


def step_of(answer: dict, name: str) -> dict:
    return next(step for step in answer["steps"] if step["name"] == name)


def test_a_topic_that_no_list_names_says_so_with_the_command_that_adds_it(copied: Copied) -> None:
    there, other = copied.sites.there, f"Other{copied.tag}"
    copied.forward.source.create_topics([TopicSpec(other, 1, 1, {})])

    answer = asked(copied, other)

    assert answer["verdict"].startswith("not copied: not listed")
    assert answer["action"] == (
        f"srm-control topics --source {there.source} --target {there.target} --add {other}"
    )
    assert step_of(answer, "exists")["ok"] is True


def test_a_pattern_of_srm_control_that_denies_is_named_with_the_way_to_take_it_back(
    copied: Copied,
) -> None:
    flow, target, pattern = copied.sites.there, copied.forward.target, f"{copied.tag[:4]}.*"
    ensure_compacted(target, internal_topics.control(flow.source), replication_factor=1)
    change = ListChange(add_deny=(pattern,))
    control_lists.change(target, flow, "topics", change, copied.forward.now_ms())

    answer = asked(copied, copied.replica)

    assert (answer["subject"], answer["asked"]) == (copied.topic, copied.replica)
    assert f"{pattern} of the list of srm-control" in answer["verdict"]
    assert answer["action"].endswith(f"--remove-denylist '{pattern}'")


def test_a_name_that_nobody_knows_is_an_error_with_what_may_be_meant(copied: Copied) -> None:
    result = run(copied, copied.topic.upper() + "x")

    assert type(result.exception).__name__ == "NotFoundError"
    assert f"did you mean topic {copied.topic} of {copied.sites.there.source}" in str(
        result.exception
    )


def test_a_group_lacks_its_checkpoint_until_the_next_emission(copied: Copied) -> None:
    copied.forward.source.commit_idle(copied.group, {copied.here: 10})

    before = asked(copied, copied.group)
    emit(copied.forward)
    after = asked(copied, copied.group)

    assert before["action"] == f"srm checkpoints emit --flow '{copied.sites.there}'"
    assert (step_of(before, "emitted")["ok"], step_of(after, "emitted")["ok"]) == (False, True)
    assert step_of(after, "translated")["ok"] is True
    assert step_of(after, "proven")["ok"] is True
    assert after["verdict"].startswith("translated; can move")


def test_a_topic_whose_copy_would_have_too_long_a_name_says_so(copied: Copied) -> None:
    flow, target, name = copied.sites.there, copied.forward.target, copied.tag.ljust(249, "x")
    copied.forward.source.create_topics([TopicSpec(name, 1, 1, {})])
    ensure_compacted(target, internal_topics.control(flow.source), replication_factor=1)
    change = ListChange(add=(name,))
    control_lists.change(target, flow, "topics", change, copied.forward.now_ms())

    answer = asked(copied, name)

    assert step_of(answer, "copy")["ok"] is False
    assert "is longer than the max allowed length 249" in answer["verdict"]


def test_a_group_that_is_in_use_on_the_target_is_left_alone_and_keeps_a_move_away(
    copied: Copied,
) -> None:
    copied.forward.source.commit_idle(copied.group, {copied.here: 10})
    emit(copied.forward)
    there = _application(copied, copied.sites.there.target, "consumer")
    there.read(1)
    eventually(
        lambda: copied.forward.target.groups([copied.group])[copied.group].state == "active",
        f"{copied.group} is in use",
    )
    try:
        answer = asked(copied, copied.group)
    finally:
        there.leave()

    assert "it is in use there" in step_of(answer, "written")["answer"]
    assert "cannot move" in answer["verdict"]
    assert step_of(answer, "movable")["ok"] is False


def test_what_is_shown_ends_with_the_one_thing_to_do(copied: Copied) -> None:
    other = f"Other{copied.tag}"
    copied.forward.source.create_topics([TopicSpec(other, 1, 1, {})])

    lines = run(copied, other).output.splitlines()

    assert lines[0].startswith(f"{copied.sites.there}: topic {other}: not copied: not listed")
    assert any(line.strip().startswith("✗") for line in lines)
    assert lines[-1].startswith("to do: srm-control topics ")


# ----- rights


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with identity_provider() as identities:
        broker = SecuredBroker(tmp_path_factory.mktemp("secured"), identities, {})
        try:
            broker.start()
            plain = {"bootstrap.servers": broker.broker.bootstrap}
            with KafkaCluster("P", plain, plain, plain) as cluster:
                specs = [TopicSpec(name, 1, 1, {}) for name in ("payments", "P.payments")]
                cluster.create_topics(specs)
                cluster.commit_idle("analytics", {TopicPartition("payments", 0): 0})
            yield broker
        finally:
            broker.broker.kill()


def why_with(srm: Srm) -> Why:
    with srm.context() as context:
        return why_topic(context, "payments")


def rights_step(answer: Why, name: str) -> Step:
    return next(step for step in answer.steps if step.name == name)


def test_with_the_documented_rights_none_is_missing(secured: SecuredBroker) -> None:
    answer = why_with(srm_with(secured, documented()))

    assert rights_step(answer, "read-right").ok
    assert rights_step(answer, "write-right").ok


def test_the_right_to_read_is_missed_by_name(secured: SecuredBroker) -> None:
    some = (
        *documented(without="Read topic payments on P"),
        Right("P", "Describe", "--topic", "payments"),
    )

    answer = why_with(srm_with(secured, some))

    assert answer.verdict == "not copied: srm lacks Read on topic payments"
    assert (
        answer.action == "grant Read on topic payments of P to srm's principal (docs/security.md)"
    )


def test_the_right_to_write_the_copy_is_missed_by_name(secured: SecuredBroker) -> None:
    answer = why_with(srm_with(secured, documented(without="Write topic P.* on B")))

    assert rights_step(answer, "write-right").answer == "srm lacks Write on topic P.payments"


def test_a_topic_that_srm_may_not_even_see_is_no_topic_that_does_not_exist(
    secured: SecuredBroker,
) -> None:
    hidden = tuple(
        right for right in documented() if not (right.cluster == "P" and right.name == "payments")
    )

    answer = why_with(srm_with(secured, hidden))

    assert answer.known
    assert rights_step(answer, "exists").answer == "P does not let srm see whether there is one"
