"""srm-control as typed, over clusters in memory."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer
from tests.overrides import overrides
from tests.suffix_policy import SUFFIX_POLICY

from srm.cli import main
from srm.cli.flows import control
from srm.cli.flows.control import read_list
from srm.config.model import Config
from srm.domain.groups.mm2_records import Checkpoint
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow, TopicPartition
from srm.engine.control.control_lists import ControlLists, ListPair, load
from srm.errors import UnavailableError, UsageError
from srm_lab.testing.fake_cluster import FakeCluster

PROPERTIES = """\
clusters = P, B
P.bootstrap.servers = primary:9092
B.bootstrap.servers = backup:9092
P->B.enabled = true
B->P.enabled = true
B->P.reverse.checkpointing.enabled = true
"""


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


Run = Callable[[str], Outcome]


@pytest.fixture
def world() -> dict[str, FakeCluster]:
    return {"P": FakeCluster("P"), "B": FakeCluster("B")}


@pytest.fixture
def opened() -> list[tuple[Config, str]]:
    """Collect the configurations and aliases that commands opened a cluster with."""
    return []


@pytest.fixture
def run(
    world: dict[str, FakeCluster],
    opened: list[tuple[Config, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """Type a command in an empty folder, with a properties file in $SRM_CONFIG."""
    file = tmp_path / "two.properties"
    file.write_text(PROPERTIES)
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    monkeypatch.setenv("SRM_CONFIG", str(file))

    @contextmanager
    def open_cluster(config: Config, alias: str) -> Iterator[FakeCluster]:
        opened.append((config, alias))
        yield world[alias]

    monkeypatch.setattr(control, "open_cluster", open_cluster)

    def type_in(line: str) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["srm-control", *line.split()])
        with pytest.raises(SystemExit) as ended:
            main.control_main()
        printed = capsys.readouterr()
        return Outcome(int(ended.value.code or 0), printed.out, printed.err)

    return type_in


def test_the_steps_of_enabling_reverse_checkpointing(
    run: Run, world: dict[str, FakeCluster]
) -> None:
    """As typed in the vendor's description, with the aliases P and B."""
    for line in (
        "topics --source P --target B --add Payments",
        "reverse-checkpointed-topics --source B --target P --add P.Payments",
        "groups --source P --target B --add payment-processor",
        "groups --source B --target P --add payment-processor",
    ):
        assert run(line) == Outcome(0, "Done.\n", "")

    processor = ListPair(("payment-processor",))
    assert load(world["B"], Flow("P", "B")) == ControlLists(ListPair(("Payments",)), processor)
    assert load(world["P"], Flow("B", "P")) == ControlLists(
        groups=processor, reverse_checkpointed_topics=ListPair(("P.Payments",))
    )
    topic = internal_topics.control("P")
    assert overrides(world["B"], [topic])[topic]["cleanup.policy"] == "compact"


def test_list_prints_both_lists_exactly(run: Run) -> None:
    run("topics --source P --target B --add b,a.* --add-blacklist a1")

    assert run("topics --source P --target B --list") == Outcome(
        0, "Current whitelist:\na.*\nb\nCurrent blacklist:\na1\nDone.\n", ""
    )
    assert run("groups --source P --target B --list").out == (
        "Current whitelist:\nCurrent blacklist:\nDone.\n"
    )


@pytest.mark.parametrize(
    ("command", "options"),
    [
        *(
            (name, "--add --remove --add-blacklist --remove-blacklist --list --producer-props")
            for name in ("topics", "groups", "reverse-checkpointed-topics")
        ),
        ("offsets", "--export --group --to"),
    ],
)
def test_each_option_of_srm_is_known(command: str, options: str) -> None:
    known = {
        option
        for parameter in typer.main.get_command(main.control).commands[command].params
        for option in parameter.opts
    }
    common = "--source --target --config --bootstrap-servers --props --consumer-props"

    assert {*options.split(), *common.split()} <= known
    # SRM's offsets has none either: it writes nothing.
    assert ("--producer-props" in known) == ("--add" in known)


def test_list_as_json(run: Run) -> None:
    run("topics --source P --target B --add a --add-denylist b")

    listed = json.loads(run("topics --source P --target B --list --json").out)
    assert listed == {"allow": ["a"], "deny": ["b"]}


def test_denylist_is_another_name_for_blacklist(run: Run, world: dict[str, FakeCluster]) -> None:
    run("topics --source P --target B --add-blacklist a --add-denylist b")
    assert load(world["B"], Flow("P", "B")).topics.deny == ("a", "b")

    run("topics --source P --target B --remove-denylist a --remove-blacklist b")
    assert load(world["B"], Flow("P", "B")).topics.deny == ()


def test_blanks_after_commas_and_repeated_options_are_taken(
    run: Run, world: dict[str, FakeCluster]
) -> None:
    outcome = run("topics --source P --target B --add topic1, topic2, topic3 --add four")

    assert outcome.code == 0
    assert load(world["B"], Flow("P", "B")).topics.allow == ("four", "topic1", "topic2", "topic3")


def test_remove(run: Run, world: dict[str, FakeCluster]) -> None:
    run("topics --source P --target B --add a,b")
    outcome = run("topics --source P --target B --remove a,c")

    assert outcome == Outcome(0, "Done.\n", "warning: c was not in the topics list\n")
    assert load(world["B"], Flow("P", "B")).topics.allow == ("b",)


def test_a_bad_pattern_is_one_line_and_changes_nothing(
    run: Run, world: dict[str, FakeCluster]
) -> None:
    outcome = run("topics --source P --target B --add good,a(")

    assert outcome.code == 2
    assert outcome.out == ""
    assert outcome.err.startswith("srm-control: 'a(' is not a regular expression")
    assert outcome.err.count("\n") == 1
    assert world["B"].topics() == {}


@pytest.mark.parametrize(
    ("typed", "advice"),
    [
        ("P__Payments", "the remote topic of Payments is P.Payments"),
        ("Payments", "the remote topic of Payments is P.Payments"),
        ("P-Payments", "the remote topic of Payments is P.Payments"),
    ],
)
def test_a_name_that_is_no_replica_is_taken_with_a_warning(
    run: Run, world: dict[str, FakeCluster], typed: str, advice: str
) -> None:
    outcome = run(f"reverse-checkpointed-topics --source B --target P --add {typed}")

    assert outcome.code == 0
    assert outcome.err.startswith(f"warning: {typed} is not a remote topic of P on B: ")
    assert advice in outcome.err
    assert load(world["P"], Flow("B", "P")).reverse_checkpointed_topics.allow == (typed,)


@pytest.mark.parametrize("typed", ["P.Payments", r"P\.Payments", r"P\.Pay.*", ".*"])
def test_a_replica_or_a_pattern_needs_no_warning(run: Run, typed: str) -> None:
    assert run(f"reverse-checkpointed-topics --source B --target P --add {typed}").err == ""


def test_a_replica_is_named_with_the_separator_of_the_file(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "other.properties"
    file.write_text(PROPERTIES + "replication.policy.separator = __\n")

    command = f"reverse-checkpointed-topics --config {file} --source B --target P --add "
    assert run(command + "P__Payments").err == ""
    assert "the remote topic of Payments is P__Payments" in run(command + "P.Payments").err


@pytest.mark.parametrize(
    ("policy", "replica"),
    [("IdentityReplicationPolicy", "Payments"), (SUFFIX_POLICY, "Payments-from-P")],
)
def test_a_replica_is_named_by_the_policy_of_the_file(
    run: Run, tmp_path: Path, policy: str, replica: str
) -> None:
    file = tmp_path / "other.properties"
    file.write_text(PROPERTIES + f"replication.policy.class = {policy}\n")

    command = f"reverse-checkpointed-topics --config {file} --source B --target P --add "
    assert run(command + replica).err == ""
    named = run(command + "P.Payments").err
    assert (replica in named) == (policy == SUFFIX_POLICY), "by identity any name is a copy's"


def test_switches_that_are_off_are_pointed_out(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "off.properties"
    file.write_text("clusters = P, B\nP.bootstrap.servers = p:1\nB.bootstrap.servers = b:1\n")

    outcome = run(
        f"--config {file} reverse-checkpointed-topics --source B --target P --add P.Payments"
    )

    assert "flow B->P is not enabled: set B->P.enabled = true in" in outcome.err
    assert "set reverse.checkpointing.enabled = true in" in outcome.err


class TestConnection:
    def test_an_address_is_enough_without_a_file(
        self, run: Run, opened: list[tuple[Config, str]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("SRM_CONFIG")

        outcome = run(
            "topics --bootstrap-servers b:1,b:2 --source P --target B --add x "
            "--props security.protocol=SSL --producer-props linger.ms=5 "
            "--consumer-props fetch.max.wait.ms=9"
        )

        assert outcome == Outcome(0, "Done.\n", "")
        (config, alias), *_ = opened
        assert alias == "B"
        basis = {"bootstrap.servers": "b:1,b:2", "security.protocol": "SSL"}
        assert config.client("B", "admin") == basis
        assert config.client("B", "producer") == {**basis, "linger.ms": "5"}
        assert config.client("B", "consumer") == {**basis, "fetch.wait.max.ms": "9"}

    def test_the_address_may_stand_before_the_subcommand(
        self, run: Run, opened: list[tuple[Config, str]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("SRM_CONFIG")

        run("--bootstrap-server b:1 --props client.id=x topics --source P --target B --list")

        assert opened[0][0].client("B", "admin") == {"bootstrap.servers": "b:1", "client.id": "x"}

    def test_options_win_over_the_file(self, run: Run, opened: list[tuple[Config, str]]) -> None:
        run("topics --bootstrap-servers other:1 --source P --target B --list")

        assert opened[0][0].client("B", "admin")["bootstrap.servers"] == "other:1"

    def test_a_file_that_was_only_found_and_is_about_other_clusters_is_no_obstacle(
        self, run: Run, opened: list[tuple[Config, str]], world: dict[str, FakeCluster]
    ) -> None:
        world["west"] = FakeCluster("west")

        outcome = run("topics --bootstrap-servers w:1 --source east --target west --add x")

        assert outcome.code == 0
        assert opened[0][0].client("west", "admin") == {"bootstrap.servers": "w:1"}

    def test_a_named_file_may_hold_client_settings_only(
        self, run: Run, opened: list[tuple[Config, str]], tmp_path: Path
    ) -> None:
        file = tmp_path / "client.properties"
        file.write_text("security.protocol = SASL_SSL\n")

        run(f"topics --config {file} --bootstrap-servers b:1 --source P --target B --list")

        assert opened[0][0].client("B", "admin") == {
            "bootstrap.servers": "b:1",
            "security.protocol": "SASL_SSL",
        }

    def test_without_file_and_address_the_message_says_what_to_give(
        self, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("SRM_CONFIG")

        outcome = run("topics --source P --target B --list")

        assert outcome.code == 2
        assert outcome.err.startswith("srm-control: no address of cluster B: give --bootstrap-")

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ("topics --source P --target X --list", "flow P->X is unknown"),
            ("topics --source P --target P --list", "has the same cluster on both sides"),
            ("topics --source P --target B", "nothing to do: give --list"),
            ("offsets --source P --target B", "nothing to do: give --export"),
            ("topics --source P --target B --list --props x", "invalid --props 'x'; use KEY=VALUE"),
            ("topics --source P --target B --list --props a.b=x", "unknown key B.a.b"),
        ],
    )
    def test_a_mistake_is_one_line_and_exit_code_2(self, run: Run, line: str, message: str) -> None:
        outcome = run(line)

        assert outcome.code == 2
        assert message in outcome.err
        assert outcome.err.count("\n") == 1

    @pytest.mark.parametrize("missing", ["--source", "--target"])
    def test_an_end_that_is_not_named_is_that_of_the_one_enabled_flow(
        self, run: Run, missing: str
    ) -> None:
        given = {"--source": "P", "--target": "B"}
        del given[missing]
        outcome = run("topics --list " + " ".join(f"{k} {v}" for k, v in given.items()))

        assert outcome.code == 0

    def test_several_enabled_flows_have_to_be_named(self, run: Run) -> None:
        outcome = run("topics --list")

        assert outcome.code == 2
        assert "name --source and --target" in outcome.err

    def test_an_unreachable_target_is_exit_code_6(
        self, run: Run, world: dict[str, FakeCluster]
    ) -> None:
        world["B"].fail(UnavailableError("cluster B does not answer; retry"))

        outcome = run("topics --source P --target B --list")

        assert (outcome.code, outcome.out) == (6, "")
        assert "cluster B does not answer; retry" in outcome.err


class TestOffsets:
    @pytest.fixture(autouse=True)
    def checkpoints(self, world: dict[str, FakeCluster]) -> None:
        """Two groups on B; P is down."""
        topic = internal_topics.checkpoints("P")
        world["B"].add_topic(topic)
        world["B"].add_topic("P.Payments")
        world["B"].produce("P.Payments", 0, 100)
        for group, offset in (("g", 5), ("h", 6)):
            record = Checkpoint(group, TopicPartition("P.Payments", 0), 100, offset)
            world["B"].compacted_topic(topic).write({record.key(): record.value()})
        world["P"].fail(UnavailableError("down"))

    def test_one_group(self, run: Run) -> None:
        outcome = run("offsets --source P --target B --export --group g")

        assert outcome == Outcome(0, "P.Payments,0,5\n", "")

    def test_all_groups(self, run: Run) -> None:
        outcome = run("offsets --source P --target B --export")

        assert outcome == Outcome(0, "g,P.Payments,0,5\nh,P.Payments,0,6\n", "")

    def test_into_a_file(self, run: Run, tmp_path: Path) -> None:
        file = tmp_path / "out.csv"

        assert run(f"offsets --source P --target B --export --to {file}") == Outcome(0, "", "")
        assert file.read_text() == "g,P.Payments,0,5\nh,P.Payments,0,6\n"

    def test_a_file_that_cannot_be_written_is_named_before_a_cluster_is_queried(
        self, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("srm.cli.flows.control.open_cluster", None)
        outcome = run(f"offsets --source P --target B --export --to {tmp_path}/no/out.csv")

        assert outcome.code == 2
        assert "no/out.csv: cannot be written (no right to do it, or no such" in outcome.err

    def test_an_unknown_group_is_exit_code_3(self, run: Run) -> None:
        outcome = run("offsets --source P --target B --export --group x")

        assert outcome.code == 3
        assert "no checkpoint of group 'x'" in outcome.err


@pytest.mark.parametrize("command", ["", "topics", "groups", "offsets"])
@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help(run: Run, command: str, option: str) -> None:
    outcome = run(f"{command} {option}".strip())

    assert outcome.code == 0
    assert "Usage:" in outcome.out
    assert "--bootstrap-servers" in outcome.out


def test_the_output_of_list_is_read_as_lists() -> None:
    text = "Current whitelist:\nPayments.*\nRefunds\nCurrent blacklist:\naudit\nDone.\n"
    assert read_list(text) == ListPair(("Payments.*", "Refunds"), ("audit",))
    assert read_list("Current whitelist:\nCurrent blacklist:\n") == ListPair((), ())
    with pytest.raises(UsageError, match="not the output"):
        read_list("Payments")
