"""The folder of a stack: what has to survive between two commands."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from srm.disk import disk_errors, write_atomically
from srm.errors import NotFoundError, StackError
from srm_lab.stack.ports import free_port


@dataclass(frozen=True)
class StackState:
    """Stored state of a stack: its ports, and whether it has Airflow and the SRM service."""

    airflow_port: int
    with_airflow: bool = False
    service_port: int = 0


class StackHome:
    """One stack's folder; at most one command changes a stack at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    @property
    def config(self) -> Path:
        """The properties file of the stack."""
        return self.path / "srm.properties"

    @property
    def logs(self) -> Path:
        """Folder with one log file per component."""
        return self.path / "logs"

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder for one command; created when absent.

        Raises:
            StackError: another command holds it, or the folder cannot be written.
        """
        with disk_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            file = (self.path / ".lock").open("w")
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StackError(
                    f"another srm stack command works on {self.path}: wait until it has ended"
                ) from None
            yield

    def require(self) -> None:
        """Check that a stack was started here before.

        Raises:
            NotFoundError: it was not.
        """
        if not self._state_file.exists():
            raise NotFoundError(f"no stack in {self.path}: start one with 'srm stack up'")

    def state(self) -> StackState:
        """Return the remembered state; what has no port yet gets a free one."""
        if not self._state_file.exists():
            return StackState(free_port(), service_port=free_port())
        state = StackState(**json.loads(self._state_file.read_text(encoding="utf-8")))
        return state if state.service_port else replace(state, service_port=free_port())

    def remember(self, state: StackState, *, with_airflow: bool) -> None:
        """Write the state down; Airflow, once part of the stack, stays part of it."""
        kept = replace(state, with_airflow=state.with_airflow or with_airflow)
        write_atomically(self._state_file, json.dumps(asdict(kept)).encode())

    @property
    def _state_file(self) -> Path:
        return self.path / "stack.json"
