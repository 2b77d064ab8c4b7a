"""What ``srm config reload`` says about each setting."""

from __future__ import annotations

from dataclasses import replace

from srm.cli.flows.replicator import SettingChange, _changes
from srm.clock import now_ms
from srm.config.model import SettingsRecord, differences, plain_settings
from srm.domain.flow_state.replication_records import DRIVER_KEY, SETTINGS_KEY, DriverHeartbeat
from srm.domain.names.policy import ReplicationPolicy
from srm_lab.testing.flows import P_TO_B, flow_config

STARTED = flow_config()
IN_FORCE = replace(STARTED, groups=("ledger",))


def commands(*, ended: bool = False) -> dict[bytes, bytes]:
    beat = DriverHeartbeat("d", "local-1", "host", 1, now_ms(), ended=ended)
    record = SettingsRecord(plain_settings(IN_FORCE), plain_settings(STARTED), 1)
    return {DRIVER_KEY: beat.value(), SETTINGS_KEY: record.value()}


def test_each_difference_says_whether_it_is_in_force() -> None:
    written = replace(IN_FORCE, tasks_max=4, topics=("T.*", "Refunds"))

    found = list(_changes(P_TO_B, commands(), plain_settings(written)))

    assert found == [
        SettingChange("P->B", "tasks.max", 1, 4, "restart"),
        SettingChange("P->B", "topics", ["T.*"], ["T.*", "Refunds"], "not taken up"),
        SettingChange("P->B", "groups", [".*"], ["ledger"], "in force"),
    ]


def test_a_flow_without_a_replicator_has_nothing_in_force() -> None:
    for found in ({}, commands(ended=True)):
        [change] = _changes(P_TO_B, found, plain_settings(IN_FORCE))
        assert change.effect == "not running"


class Prefix(ReplicationPolicy):
    """A policy without a text of its own: that of each object differs."""

    def __init__(self, separator: str) -> None:
        self.separator = separator

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        return f"{source_alias}{self.separator}{topic}"

    def topic_source(self, topic: str) -> str | None:
        return topic.rpartition(self.separator)[0] or None

    def upstream_topic(self, topic: str) -> str | None:
        return topic.rpartition(self.separator)[2]


def test_a_setting_is_the_same_text_in_each_process() -> None:
    names = frozenset({"P", "B", "C", "D"})
    one, other = (
        replace(STARTED, policy=Prefix("-"), back=Prefix("-"), aliases=names, joined=names)
        for _ in range(2)
    )

    assert plain_settings(one)["aliases"] == plain_settings(one)["joined"] == [*"BCDP"]
    assert differences(plain_settings(one), plain_settings(other)) == {}
