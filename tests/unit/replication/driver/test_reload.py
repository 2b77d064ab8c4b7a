"""A running application takes up what has changed in its file, flow by flow."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from srm.config.loader import load_config
from srm.config.model import Config, FlowConfig, SettingsRecord
from srm.domain.names.topics import Flow
from srm.replication.driver.driver import FlowDriver
from srm.replication.driver.flow_run import LOOK_S, SettingsReload

TEXT = """
clusters = P, B
P.bootstrap.servers = 127.0.0.1:1
B.bootstrap.servers = 127.0.0.1:2
P->B.enabled = true
B->P.enabled = true
P->B.topics = Payments
"""
FLOWS = Flow("P", "B"), Flow("B", "P")


class Lab:
    """A file, and an application of both flows that follows it."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.now = 0.0
        self.write()
        self.drivers = {flow: SimpleNamespace(settings=b"") for flow in FLOWS}
        self.taken: list[FlowConfig] = []
        self.started: list[FlowConfig] = []
        self.reload = SettingsReload(self.load, lambda: self.now)
        for flow in FLOWS:
            self.start(flow, self.load())

    def start(self, flow: Flow, config: Config) -> None:
        """Start a flow of the application, also again."""
        self.started.append(config.flow(flow))
        driver, again = cast("FlowDriver", self.drivers[flow]), partial(self.start, flow)
        self.reload.follow(driver, config, flow, [self.taken.append], again)

    def write(self, *lines: str) -> None:
        self.file.write_text(TEXT + "\n".join(lines) + "\n")

    def load(self) -> Config:
        return load_config(self.file)

    def look(self) -> None:
        """Let the application read the file, and again as it does before it takes a change."""
        for _ in range(2):
            self.look_once()

    def look_once(self) -> None:
        self.now += LOOK_S
        self.reload.look()

    def settings(self, flow: Flow = FLOWS[0]) -> SettingsRecord:
        return SettingsRecord.decode(self.drivers[flow].settings)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path / "srm.properties")


def test_the_flow_that_a_line_is_for_takes_it_and_no_other(lab: Lab) -> None:
    before = lab.settings(FLOWS[1])
    lab.write("P->B.groups = ledger", "P->B.emit.checkpoints.interval.seconds = 5")

    lab.look()

    assert [(one.flow, one.groups) for one in lab.taken] == [(FLOWS[0], ("ledger",))]
    found = lab.settings()
    assert (found.before["groups"], found.in_force["groups"]) == ([], ["ledger"])
    assert found.in_force["emit_checkpoints_interval"] == 5.0
    assert lab.settings(FLOWS[1]) == before
    lab.look()
    assert len(lab.taken) == 1


def test_what_slots_have_from_their_start_starts_their_flow_again_and_no_other(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    lab.write(
        "P->B.groups = ledger", "P->B.replicator.max.bytes.per.second = 700", "P->B.tasks.max = 4"
    )

    lab.look()
    lab.look()

    [again] = lab.started[len(FLOWS) :]
    assert (again.flow, again.max_bytes_per_second, again.groups) == (FLOWS[0], 700, ("ledger",))
    assert again.tasks_max == 1, "it waits for a core"
    assert lab.taken == []
    assert lab.settings().before["groups"] == []
    assert "P->B: new settings of its slots: it starts again" in caplog.text


def test_the_number_of_slots_waits_for_a_restart_of_the_application(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    lab.write("P->B.groups = ledger", "P->B.tasks.max = 4")

    lab.look()

    assert [(one.tasks_max, one.groups) for one in lab.taken] == [(1, ("ledger",))]
    assert "P->B: groups: [] becomes ['ledger'], in force" in caplog.text
    assert "P->B: tasks.max: 1 becomes 4, waits for srm replicator restart" in caplog.text


def test_a_file_that_cannot_be_used_changes_nothing_and_is_named_once(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    lab.write("P->B.tasks.max = many")
    lab.look()
    lab.look()

    assert caplog.text.count("keeping the previous settings: ") == 1
    assert lab.taken == []
    lab.write("P->B.groups = ledger")
    lab.look()
    assert len(lab.taken) == 1


def test_a_renewed_secret_starts_the_flows_of_its_cluster_again_without_naming_it(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    lab.look()
    lab.write("P->B.consumer.sasl.password = swordfish")

    lab.look()
    lab.look()

    assert [one.flow for one in lab.started[len(FLOWS) :]] == [FLOWS[0]]
    assert "P->B: new settings of its clients: it starts again" in caplog.text
    assert "swordfish" not in caplog.text + repr(lab.settings())

    lab.write("P.sasl.password = swordfish")
    lab.look()

    assert sorted(one.flow for one in lab.started[-2:]) == sorted(FLOWS)


def test_a_change_is_handed_over_once_even_where_the_flow_does_not_start_again(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    """Another replicator may have taken the flow over."""
    for one in lab.reload._flows.values():
        one.again = lambda _config: None
    lab.write("P.sasl.password = swordfish")

    for _ in range(4):
        lab.look()

    assert caplog.text.count("P->B: new settings of its clients") == 1


def test_a_renewed_certificate_starts_the_flows_that_name_its_file_again(
    lab: Lab, tmp_path: Path
) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("old")
    lab.write(f"P->B.consumer.ssl.ca.location = {file}")
    lab.look()
    begun = len(lab.started)
    lab.look()
    assert len(lab.started) == begun

    file.write_text("half")
    os.utime(file, ns=(1, 1))
    lab.look_once()
    file.write_text("new")
    os.utime(file, ns=(2, 2))
    lab.look_once()
    assert len(lab.started) == begun, "the file was not read twice in one state"
    lab.look_once()

    assert [one.flow for one in lab.started[begun:]] == [FLOWS[0]]


def test_settings_that_are_published_hold_no_secret(lab: Lab) -> None:
    lab.write("P->B.failover.redirect = webhook", "P->B.failover.webhook.url = https://h/swordfish")
    lab.look()

    assert "swordfish" not in repr(lab.settings())
    assert replace(lab.settings(), time_ms=0) == replace(
        SettingsRecord.decode(lab.settings().value()), time_ms=0
    )


def test_arguments_and_commands_are_published_without_what_they_refer_to(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    lab.write(
        'P->B.failover.notifier.arguments = {"token": "swordfish"}',
        "P->B.failover.command = curl -H swordfish",
    )

    lab.look()

    assert lab.taken[0].failover_notifier_arguments == '{"token": "swordfish"}'
    assert "swordfish" not in caplog.text + repr(lab.settings())


def test_a_change_is_taken_once_two_reads_in_a_row_agree(lab: Lab) -> None:
    """The file may be half written at one of them."""
    lab.write("P->B.groups = led")
    lab.look_once()
    lab.write("P->B.groups = ledger")
    lab.look_once()
    assert lab.taken == []

    lab.look_once()

    assert [one.groups for one in lab.taken] == [("ledger",)]
