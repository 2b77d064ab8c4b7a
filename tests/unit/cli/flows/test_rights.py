"""srm rights prints the rights of docs/security.md, with which other tests run on brokers."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from tests.integration.rights import documented
from tests.suffix_policy import SUFFIX_POLICY
from typer.testing import CliRunner

from srm.cli.main import app
from srm.errors import UsageError

PROPERTIES = """
clusters = P, B
P.bootstrap.servers = p1:9092
B.bootstrap.servers = b1:9092
P->B.enabled = true
topics = payments
groups = app
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "srm.properties"
    path.write_text(PROPERTIES)
    return path


def rights_of(config: Path, *options: str) -> list[str]:
    """Return each right as the documented ones are named."""
    result = CliRunner().invoke(app, ["rights", "--config", str(config), *options, "--json"])
    assert result.exit_code == 0, result.exception
    found = []
    for one in json.loads(result.stdout):
        right = one["right"]
        name = (right["name"] or "kafka-cluster") + "*" * right["prefixed"]
        kind = right["option"].strip("-")
        found += [f"{each} {kind} {name} on {right['cluster']}" for each in right["operations"]]
    return found


def test_the_rights_of_the_replicator_are_the_documented_ones(config: Path) -> None:
    assert rights_of(config) == [str(right) for right in documented()]


def test_the_rights_of_a_client_are_the_documented_ones(config: Path) -> None:
    found = rights_of(config, "--role", "client", "--group", "app")

    assert found == [str(right) for right in documented(commands="app")]


def test_an_operator_has_the_rights_of_both_directions_and_those_of_moves(config: Path) -> None:
    found = rights_of(config, "--role", "operator")

    assert {str(right) for right in documented()} < {*found}
    for alias in ("P", "B"):
        assert f"Read topic __transaction_state on {alias}" in found
        assert f"Read group app on {alias}" in found
        assert f"Write transactional-id srm-* on {alias}" in found


def test_the_service_has_no_right_to_change_anything(config: Path) -> None:
    found = rights_of(config, "--role", "service")

    assert {right.partition(" ")[0] for right in found} == {"Describe", "Read"}
    assert {right for right in found if right.endswith(" on B")} == {
        "Read topic P.checkpoints.internal on B",
        "Describe topic payments on B",
        "Describe topic P.* on B",
        "Read topic __srm-* on B",
        "Describe group * on B",
    }


def test_acl_sync_takes_the_right_to_change_acls_by_choice_only(config: Path) -> None:
    more = set(rights_of(config, "--acls")) - set(rights_of(config))

    assert more == {
        f"{right} kafka-cluster on {alias}"
        for right, alias in (("Describe cluster", "P"), ("Describe cluster", "B"))
    } | {"Alter cluster kafka-cluster on B"}


def test_patterns_become_prefixes_and_offset_syncs_go_where_the_file_says(config: Path) -> None:
    config.write_text(f"{PROPERTIES}topics = pay.*, .*x\noffset-syncs.topic.location = target\n")

    found = rights_of(config)

    assert "Read topic pay* on P" in found
    assert "Read topic * on P" in found
    assert "Write topic mm2-offset-syncs.P.internal on B" in found


def test_the_checkpoints_topic_is_granted_where_no_prefix_covers_it(config: Path) -> None:
    """``IdentityReplicationPolicy`` gives copies no prefix; the checkpoints topic has one."""
    policy = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
    config.write_text(f"{PROPERTIES}replication.policy.class = {policy}\n")

    found = rights_of(config)

    operations = {right.split()[0] for right in found if "P.checkpoints.internal on B" in right}
    assert operations >= {"Create", "Write", "Read"}


@pytest.mark.parametrize(("policy", "suffix"), [("Identity", ""), (SUFFIX_POLICY, "-from-P")])
@pytest.mark.parametrize("role", [("service",), ("client", "--group", "app")])
def test_copies_without_a_prefix_are_granted_by_their_names(
    config: Path, policy: str, suffix: str, role: tuple[str, ...]
) -> None:
    name = "IdentityReplicationPolicy" if policy == "Identity" else policy
    lines = f"topics = payments, or.*, .*x\nreplication.policy.class = {name}\n"
    config.write_text(f"{PROPERTIES}{lines}")

    found = {right.partition(" topic ")[2] for right in rights_of(config, "--role", *role)}

    assert {f"payments{suffix} on B", "or* on B", "* on B"} <= found
    assert not {"kafka-cluster* on B", "-from-P* on B"} & found, "no prefix without a name"


def test_each_line_is_a_command_for_the_cluster_of_the_file(config: Path) -> None:
    result = CliRunner().invoke(app, ["rights", "--config", str(config), "--principal", "User:me"])

    first = shlex.split(result.stdout.splitlines()[0])
    assert first == shlex.split(
        "kafka-acls.sh --bootstrap-server p1:9092 --command-config admin.properties --add "
        "--allow-principal User:me --operation Read --operation DescribeConfigs --topic payments"
    )


def test_a_client_without_a_group_is_refused(config: Path) -> None:
    result = CliRunner().invoke(app, ["rights", "--config", str(config), "--role", "client"])

    assert isinstance(result.exception, UsageError)
