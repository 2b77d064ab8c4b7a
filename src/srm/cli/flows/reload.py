"""``srm config reload``: what a running replicator has taken up from the properties file."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from rich.console import Console
from rich.markup import escape

from srm.cli.console import ConfigOption, FlowsOption, JsonOption, emit
from srm.cli.flows.replicator import WaitOption
from srm.clock import now_ms
from srm.config.changes import RESTARTED, SettingsRecord, differences, key_of, plain_settings
from srm.config.loader import load_config
from srm.domain.flow_state.replication_records import SETTINGS_KEY
from srm.domain.names.topics import Flow
from srm.engine.flows.supervision import driver_status
from srm.errors import UnavailableError
from srm.pages.tables import Listing
from srm.wiring import open_state_topics

_POLL_S: Final = 0.5
Effect = Literal["in force", "restart", "not taken up", "not running"]


@dataclass(frozen=True, slots=True)
class SettingChange:
    """A setting of a flow that has changed; ``restart``: it waits for srm replicator restart."""

    flow: str
    key: str
    before: Any
    after: Any
    effect: Effect


def reload(
    *,
    config: ConfigOption = None,
    flow: FlowsOption = None,
    wait: WaitOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """Show what the replicator has taken up from the file, and what waits for its restart.

    A replicator reads its file every three seconds, with lists and secrets. This waits until it has
    the values of the file here. Secrets and other settings of clients are not compared.

    Exit code 6 where a replicator runs and has not taken up a setting in time.
    """
    resolved = load_config(config)
    wanted = tuple(flow or resolved.flows)
    written = {one: plain_settings(resolved.flow(one)) for one in wanted}
    deadline = time.monotonic() + wait
    with open_state_topics(resolved, wanted) as topics:
        while True:
            changes = [
                change
                for one in wanted
                for change in _changes(one, topics[one].read_commands(), written[one])
            ]
            late = [one for one in changes if one.effect == "not taken up"]
            if not late or time.monotonic() > deadline:
                break
            time.sleep(_POLL_S)
    emit(changes, as_json, lambda console: _render(console, changes))
    if late:
        raise UnavailableError(
            f"{late[0].flow}: {late[0].key} is not taken up: see the log and the file of the "
            "replicator's host"
        )


def _changes(
    flow: Flow, commands: Mapping[bytes, bytes], written: Mapping[str, Any]
) -> Iterator[SettingChange]:
    driver, _ = driver_status(commands, flow, now_ms())
    if driver is None or not driver.alive or SETTINGS_KEY not in commands:
        yield SettingChange(str(flow), "", None, None, "not running")
        return
    found = SettingsRecord.decode(commands[SETTINGS_KEY])
    for name, (before, after) in differences(found.in_force, written).items():
        effect: Effect = "restart" if name in RESTARTED else "not taken up"
        yield SettingChange(str(flow), key_of(name), before, after, effect)
    if found.before:
        for name, (before, after) in differences(found.before, found.in_force).items():
            yield SettingChange(str(flow), key_of(name), before, after, "in force")


def _render(console: Console, changes: list[SettingChange]) -> None:
    if not changes:
        console.print("the settings in force are those of the file since the replicator's start")
        return
    table = Listing("flow", "key", "before", "after", "effect")
    for one in changes:
        values = ("-" if value is None else escape(str(value)) for value in (one.before, one.after))
        effect = "srm replicator restart" if one.effect == "restart" else one.effect
        table.add_row(one.flow, one.key or "-", *values, effect)
    console.print(table)
