"""A drill on real brokers: a real member reads, a wrong map is found, a kill leaves nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from tests.integration.test_checkpoints_real import (
    RECORDS,
    SHIFT,
    Application,
    Copied,
    copied,
    sites,
)
from tests.waiting import eventually
from typer.testing import CliRunner

from srm.cli.main import app
from srm.domain.groups.group_sync import all_entries
from srm.domain.names import internal_topics
from srm.domain.offset_map.map_records import MAP_PARTITIONS
from srm.domain.offset_map.offset_map import Run
from srm.engine.drill import read_drills
from srm.engine.emission import emit
from srm.errors import ConflictError, GroupActiveError
from srm.kafka.tables import single_records

pytestmark = [pytest.mark.kafka, pytest.mark.integration]
__all__ = ["copied", "sites"]

HANGS = """
import sys, time
from srm.cli.main import app
from srm.kafka.tables import single_records

single_records._SESSION_MS = 30_000  # on a busy machine no sign of life of it may be in time
drain = single_records.drain

def hang(*arguments):
    while not [*drain(*arguments)]:
        pass
    print("joined", flush=True)
    while True:
        time.sleep(60)

single_records.drain = hang
app(sys.argv[1:], standalone_mode=False)
"""


def drill(copied: Copied, *options: str) -> list[str]:
    there = copied.sites.there
    pair = ["--source", there.source, "--target", there.target]
    return ["failover", "drill", "--config", str(copied.sites.path), *pair, *options]


def left(copied: Copied) -> tuple[list[str], list[str]]:
    """Shadow groups, and what the ledger says of such."""
    target = copied.forward.target
    entries = all_entries(target.compacted_topic(internal_topics.LEDGER).read())
    names = [*target.groups()], [entry.group for entry in entries]
    shadows, noted = (
        [n for n in some if n.startswith("srm-drill.") and n.endswith(copied.group)]
        for some in names
    )
    return shadows, noted


def put_wrong_map(copied: Copied) -> None:
    """Let the map say of each record that it is one offset before where it is."""
    alias = copied.sites.there.source
    for number in range(MAP_PARTITIONS):
        table = copied.forward.target.compacted_topic(internal_topics.offset_map(alias), number)
        table.write(dict.fromkeys(table.read()))
    copied._map(Run(0, SHIFT - 1, RECORDS))


def test_a_member_reads_what_the_group_would_and_a_wrong_map_is_found(copied: Copied) -> None:
    copied.forward.source.commit_idle(copied.group, {copied.here: 12})
    emit(copied.forward)

    command = drill(copied, "--group", copied.group, "--json")
    done = CliRunner().invoke(app, command)

    assert done.exit_code == 0, done.output + str(done.exception)
    [group] = json.loads(done.stdout)["groups"]
    assert (group["partitions"], group["proven"], group["read"]) == (1, 1, 1)
    assert left(copied) == ([], [])

    put_wrong_map(copied)
    wrong = CliRunner().invoke(app, command)
    emitted = emit(copied.forward)

    assert isinstance(wrong.exception, ConflictError)
    assert "differ in value" in str(wrong.exception)
    assert (emitted.written, len(emitted.proof.disproved)) == (0, 1)
    assert left(copied) == ([], [])
    history = drill(copied, "--history", "--json")
    ok = [one["problems"] == [] for one in json.loads(CliRunner().invoke(app, history).stdout)]
    assert ok == [True, False]
    status = CliRunner().invoke(
        app, ["status", "--config", str(copied.sites.path), "--flow", str(copied.sites.there)]
    )
    assert "0 of 1 groups proven" in status.stdout
    assert "wrong translation, not emitted" in status.stdout


def test_a_kip_848_group_is_rehearsed_with_its_own_protocol(
    copied: Copied, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = copied.sites.bootstrap(copied.sites.there.source)
    application = Application(source, copied.group, copied.topic, "consumer")
    application.read(12)
    application.leave()
    emit(copied.forward)
    protocols: list[str] = []
    open_reader = single_records.open_reader

    def opened(props: Mapping[str, str], settings: Mapping[str, str]) -> Consumer:
        protocols.append(settings["group.protocol"])
        return open_reader(props, settings)

    monkeypatch.setattr(single_records, "open_reader", opened)
    done = CliRunner().invoke(app, drill(copied, "--group", copied.group, "--json"))

    assert done.exit_code == 0, done.output + str(done.exception)
    assert protocols == ["consumer"]
    [group] = json.loads(done.stdout)["groups"]
    assert (group["proven"], group["read"]) == (1, 1)
    assert left(copied) == ([], [])


def test_what_a_killed_drill_has_left_is_removed_by_the_next_run(
    copied: Copied, tmp_path: Path
) -> None:
    copied.forward.source.commit_idle(copied.group, {copied.here: 12})
    emit(copied.forward)
    command = drill(copied, "--group", copied.group)
    with (
        (tmp_path / "errors").open("wb") as errors,
        subprocess.Popen(
            [sys.executable, "-c", HANGS, *command], stdout=subprocess.PIPE, stderr=errors
        ) as process,
    ):
        assert process.stdout is not None
        try:
            said = process.stdout.readline()
            assert said == b"joined\n", (tmp_path / "errors").read_text()
            shadows, entries = left(copied)
            active = copied.forward.target.groups(shadows)[shadows[0]].state
            with pytest.raises(GroupActiveError):
                copied.forward.target.delete_groups(shadows)
        finally:
            process.kill()

    def are_removed() -> bool:
        emit(copied.forward)
        return left(copied) == ([], [])

    assert (len(shadows), entries, active) == (1, shadows, "active")
    eventually(are_removed, "nothing is left")
    [killed] = read_drills(copied.forward.target, str(copied.sites.there))
    assert killed.state == "interrupted"
