"""A supervisor over routes and members that a test sets, with real programs under it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tests.waiting import DEADLINE_S, eventually

from srm.config.loader import load_config
from srm.config.model import Config
from srm.domain.moves.announcements import Ack
from srm.domain.moves.routing import Route, home_route
from srm.follow.program import Restarts, Stopping
from srm.follow.supervisor import Job, MembersLook, ProgramSupervisor
from srm.follow.values import ProgramSettings, Template

GROUP = ProgramSettings("audit", ("Payments",))
PRODUCER = ProgramSettings(writes=("Payments",))


def config_in(home: Path, *lines: str) -> Config:
    path = home / "clients.properties"
    path.write_text(
        "\n".join(
            [
                "clusters = P, B",
                "P.bootstrap.servers = p1:9092",
                "B.bootstrap.servers = b1:9092",
                *lines,
            ]
        )
    )
    return load_config(path)


class Routes:
    """What a RoutingWatcher knows, as set by the test; home is P. Takes acknowledgements."""

    def __init__(self) -> None:
        self.home = "P"
        self.acks: list[Ack] = []
        self.withdrawn: list[Ack] = []
        self._changed = threading.Condition()
        self._routes: dict[str, Route] = {}

    def start(self, subjects: Collection[str]) -> None:
        """Nothing is needed."""

    def route(self, subject: str) -> Route:
        with self._changed:
            return self._routes.get(subject, home_route(self.home))

    def wait_changes(
        self, known: Mapping[str, Route | None], timeout_s: float | None
    ) -> dict[str, Route]:
        def present() -> dict[str, Route]:
            return {subject: self.route(subject) for subject in known}

        with self._changed:
            self._changed.wait_for(lambda: present() != known, timeout_s)
            return present()

    def set(self, subject: str, generation: int, cluster: str, state: Any) -> None:
        with self._changed:
            decided = state == "go" and cluster != "P"
            self._routes[subject] = Route(generation, cluster, state, "m", decided=decided)
            self._changed.notify_all()

    def acknowledge(self, ack: Ack) -> None:
        self.acks.append(ack)

    def withdraw(self, ack: Ack) -> None:
        self.withdrawn.append(ack)

    def said(self, subject: str, state: str, generation: int) -> bool:
        return any(
            (ack.subject, ack.state, ack.generation) == (subject, state, generation)
            for ack in self.acks
        )


class Members:
    """The group at the brokers, as set by the test."""

    def __init__(self) -> None:
        self.at: dict[str, MembersLook] = {}
        self.looks = 0
        self.taken_out: list[tuple[str, str]] = []
        self.answers = True
        self.report: Callable[[MembersLook], None] = lambda _seen: None

    def make(self, _group: str, report: Callable[[MembersLook], None]) -> Self:
        self.report = report
        return self

    def look(self, cluster: str, dead: str = "") -> None:
        self.looks += 1
        if dead:
            self.taken_out.append((cluster, dead))
        if self.answers:
            self.report(self.at.get(cluster, MembersLook(cluster)))


class Running:
    """A supervisor in a thread of its own."""

    def __init__(
        self,
        home: Path,
        command: Sequence[str],
        work: ProgramSettings = GROUP,
        restarts: Restarts | None = None,
        stopping: Stopping | None = None,
        templates: Sequence[Template] = (),
    ) -> None:
        self.routes = Routes()
        self.members = Members()
        self.code: int | None = None
        job = Job(
            config_in(home),
            work,
            command,
            f"srm-follow-test-{home.name}",
            templates,
            stopping or Stopping(grace_s=DEADLINE_S),
        )
        routes: Any = self.routes
        self.supervisor = ProgramSupervisor(job, routes, restarts or Restarts(), self.members.make)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.supervisor.signal(15)
        self.supervisor.signal(15)
        self.ended()

    def end(self) -> int | None:
        """Ask for an end in order, and wait for it; return the exit code."""
        self.supervisor.signal(15)
        return self.ended()

    def ended(self) -> int | None:
        """Wait for the supervisor's end; return its exit code."""
        eventually(lambda: not self._thread.is_alive(), "the supervisor ends")
        return self.code

    def _run(self) -> None:
        self.code = self.supervisor.run()
