"""Changes of the properties file, taken up by a running application within seconds."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from srm.clock import now_ms
from srm.config.changes import RESTARTED, SettingsRecord, differences, key_of, plain_settings
from srm.config.model import Config, FlowConfig
from srm.errors import SrmError
from srm.replication.driver.driver import FlowDriver

logger = logging.getLogger(__name__)

LOOK_S: Final = 3.0


@dataclass
class _Followed:
    """A flow: its settings in force and in the file, and what takes new ones."""

    driver: FlowDriver
    in_force: FlowConfig
    written: FlowConfig
    takers: Sequence[Callable[[FlowConfig], None]]


class SettingsReload:
    """Reads the file again and again, with the secrets and lists that it refers to.

    A flow takes its own changes only; what its slots have from their start is in force until a
    restart, and logged. An invalid file changes nothing. A change counts once two reads in a row
    agree: an editor may be half way through.
    """

    def __init__(
        self, load: Callable[[], Config], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._load = load
        self._clock = clock
        self._flows: list[_Followed] = []
        self._look_at = clock() + LOOK_S
        self._failure = ""
        self._clients: Any = None
        self._read: Config | None = None

    def follow(
        self,
        driver: FlowDriver,
        config: FlowConfig,
        takers: Sequence[Callable[[FlowConfig], None]],
    ) -> None:
        """Keep a flow up to date."""
        self._flows.append(_Followed(driver, config, config, takers))
        driver.settings = SettingsRecord(plain_settings(config), {}, now_ms()).value()

    def look(self) -> None:
        """Read the file if it is time, and hand changes over."""
        if self._clock() < self._look_at:
            return
        try:
            found = self._load()
        except SrmError as error:
            if str(error) != self._failure:
                logger.warning("the settings stay as they are: %s", error)
            self._failure, self._read = str(error), None
        else:
            self._failure = ""
            if found == self._read:
                self._take(found)
            self._read = found
        self._look_at = self._clock() + LOOK_S

    def _take(self, found: Config) -> None:
        clients = found.clients, found.flow_clients
        if self._clients not in (None, clients):
            logger.warning("settings of clients have changed: srm replicator restart applies them")
        self._clients = clients
        for one in self._flows:
            written = found.flow_configs.get(one.in_force.flow)
            if written is None or written == one.written:
                continue
            changes = differences(plain_settings(one.written), plain_settings(written))
            was = plain_settings(one.in_force)
            one.written = written
            kept = {name: getattr(one.in_force, name) for name in RESTARTED}
            one.in_force = replace(written, **kept)
            for take in one.takers:
                take(one.in_force)
            in_force = plain_settings(one.in_force)
            one.driver.settings = SettingsRecord(in_force, was, now_ms()).value()
            for name, (before, after) in changes.items():
                effect = "waits for srm replicator restart" if name in RESTARTED else "in force"
                values = key_of(name), before, after, effect
                logger.warning("%s: %s: %s becomes %s, %s", written.flow, *values)
