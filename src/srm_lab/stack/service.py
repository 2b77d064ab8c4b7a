"""The SRM service of the embedded stack: pages, REST API and metrics of both flows."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import httpx

from srm_lab.stack.process import LOOPBACK, ManagedProcess, ProcessSpec, require_free

NAME: Final = "SRM service"
_START_SECONDS: Final = 240.0
_STOP_SECONDS: Final = 10.0
_REQUEST_SECONDS: Final = 5.0


class EmbeddedService:
    """``srm-service`` over the stack's properties file.

    ``home``: folder of the stack; its log goes to ``logs``. ``port``: port of pages and REST API.
    ``environ``: additions to the environment of the process.
    """

    def __init__(
        self, home: Path, port: int, config_path: Path, environ: Mapping[str, str]
    ) -> None:
        self._home = home
        self._port = port
        self._config_path = config_path
        self._environ = dict(environ)
        self.process = ManagedProcess(
            NAME, home / "logs" / "srm-service.log", home / "run" / "srm-service.pid"
        )

    @property
    def url(self) -> str:
        """Address of its pages."""
        return f"http://localhost:{self._port}"

    @property
    def ready(self) -> bool:
        """True once it has read both clusters."""
        try:
            address = f"http://{LOOPBACK}:{self._port}/health"
            return httpx.get(address, timeout=_REQUEST_SECONDS, trust_env=False).is_success
        except httpx.TransportError:
            return False

    def start(self) -> None:
        """Start it unless it runs; does not wait until it is ready.

        StackError: the port is taken, or the program cannot run.
        """
        if self.process.running:
            return
        require_free(self._port, NAME)
        command = [
            str(Path(sys.executable).with_name("srm-service")),
            *("--config", str(self._config_path)),
            *("--host", LOOPBACK, "--port", str(self._port)),
        ]
        environ = {**os.environ, **self._environ}
        self.process.start(ProcessSpec(NAME, command, environ, self.process.log, self._home))

    def wait_ready(self) -> None:
        """Wait until it has looked at both clusters.

        StackError: it ended, or the time is up.
        """
        self.process.wait_until(lambda: self.ready, _START_SECONDS, "ready")

    def stop(self) -> None:
        """Stop it: SIGTERM, wait, SIGKILL."""
        self.process.stop(_STOP_SECONDS)
