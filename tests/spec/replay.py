"""Ask TLC whether the records that moves have left behind are what the protocol allows.

Not a second implementation of the protocol: the records become constants of docs/spec/Trace.tla,
and TLC looks for a behaviour of docs/spec/Move.tla that leaves exactly them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from tests.spec.tlc import check

from srm.domain.moves.progress import DECIDED, MoveProgress
from srm.domain.moves.routing import Route, decode_route, is_subject
from srm.domain.names import internal_topics
from srm.engine.cluster_ports import Cluster

_PROGRESS = b"progress:"
_CONFIG = """CONSTANTS
    Operators = {one, two}
    Clients = {}
    Moves <- RecordedMoves
    Unplanned = {}
    MaxGeneration = 1
    MaxBeat <- RecordedBeats
    Off = {}
    RouteLog <- RecordedRoutes
    StepLog <- RecordedSteps
    SourceOf <- RecordedDirections
    Source <- RecordedSource
    NextGenerations <- RecordedGenerations
SPECIFICATION TraceSpec
SYMMETRY Symmetry
INVARIANTS
    Progress
    NotAllExplained
"""


@dataclass(frozen=True)
class Recorded:
    """What one cluster's log has of each key, oldest first, of routes and of moves."""

    alias: str
    routing: Mapping[bytes, Sequence[bytes]]
    moves: Mapping[bytes, Sequence[bytes]]

    @classmethod
    def of(cls, cluster: Cluster) -> Recorded:
        """Read what a cluster has."""
        topics = (internal_topics.ROUTING, internal_topics.MOVES)
        routing, moves = (
            {key: [row.value for row in rows] for key, rows in history.items()}
            for history in (cluster.compacted_topic(topic).read_history() for topic in topics)
        )
        return cls(cluster.alias, routing, moves)


def violations(source: Recorded, target: Recorded, folder: Path) -> list[str]:
    """Return what of the records the protocol cannot have written, one line for each subject.

    Args:
        source: records of the cluster where clients were before the first of the moves.
        target: records of the other cluster.
        folder: an empty one for TLC.
    """
    found = []
    known: dict[str, str | None] = {}
    for subject in sorted({k for one in (source, target) for k in one.routing if is_subject(k)}):
        trace = _Trace.of(source, target, subject)
        module = trace.module()
        if module not in known:
            place = folder / f"trace-{len(known)}"
            place.mkdir()
            known[module] = trace.unexplained(place, module)
        if (line := known[module]) is not None:
            found.append(f"{subject.decode()}: {line}")
    return found


@dataclass(frozen=True)
class _Trace:
    """Routes of one subject and steps of its moves, by cluster; the source is P in the model."""

    aliases: Mapping[str, str]
    routes: Mapping[str, Sequence[Route]]
    steps: Mapping[str, Sequence[tuple[str, int, str]]]

    @classmethod
    def of(cls, source: Recorded, target: Recorded, subject: bytes) -> _Trace:
        both = {"P": source, "B": target}
        routes = {
            name: [decode_route(subject, value) for value in one.routing.get(subject, ())]
            for name, one in both.items()
        }
        moves = {route.move_id for rows in routes.values() for route in rows}
        steps = {name: _steps(one, moves) for name, one in both.items()}
        return cls({source.alias: "P", target.alias: "B"}, routes, steps)

    def module(self) -> str:
        """Write the module that gives TLC the records."""
        every = [route for rows in self.routes.values() for route in rows]
        sources = self._sources()
        directions = " @@ ".join(f'"{move}" :> "{at}"' for move, at in sorted(sources.items()))
        lines = [
            "---- MODULE Recorded ----",
            "EXTENDS Trace",
            f"RecordedDirections == {directions}",
            "RecordedMoves == DOMAIN RecordedDirections",
            f"RecordedBeats == {max(route.beat for route in every)}",
            f"RecordedRoutes == {self._logs(self._route_lines)}",
            f"RecordedSteps == {self._logs(self._step_lines)}",
            "====",
        ]
        return "\n".join(lines)

    def unexplained(self, folder: Path, module: str) -> str | None:
        """Run TLC; None if the records can be explained, else the first that cannot."""
        (folder / "Recorded.tla").write_text(module)
        outcome = check(folder, "Recorded", _CONFIG)
        if outcome.violated == "NotAllExplained":
            return None
        assert outcome.violated is None, outcome.output
        explained = re.findall(r"(routes|steps) \|-> (\d+)", outcome.output)[-4:]
        # TLC prints the clusters in the order of the alphabet, or of the definition.
        order = ["P", "B"] if self._first_is_p(outcome.output) else ["B", "P"]
        names = {name: alias for alias, name in self.aliases.items()}
        counts = [int(count) for _, count in explained] or [0, 0, 0, 0]
        parts = [
            f"on {names[name]} {counts[2 * n]} of {len(self.routes[name])} routes and "
            f"{counts[2 * n + 1]} of {len(self._steps_that_count(name))} steps"
            for n, name in enumerate(order)
        ]
        return f"no behaviour of the protocol leaves these records; explained are {_joined(parts)}"

    @staticmethod
    def _first_is_p(output: str) -> bool:
        return output.rfind("P |->") < output.rfind("B |->")

    def _left(self, route: Route) -> str:
        """Return the cluster that the move of a route leaves."""
        at = self.aliases[route.cluster]
        return {"P": "B", "B": "P"}[at] if route.decided else at

    def _logs(self, lines: Callable[[str], str]) -> str:
        return f'[c \\in Clusters |-> IF c = "P" THEN {lines("P")} ELSE {lines("B")}]'

    def _route_lines(self, name: str) -> str:
        return _sequence(
            f"[generation |-> {one.generation}, rank |-> {one.phase + 1}, "
            f'to |-> "{self.aliases[one.cluster]}", by |-> "{one.move_id}", '
            f"beat |-> {one.beat - 1 if one.state == 'hold' else 0}]"
            for one in self.routes[name]
        )

    def _step_lines(self, name: str) -> str:
        return _sequence(
            f'[generation |-> {attempt}, by |-> "{move}", step |-> "{step}"]'
            for move, attempt, step in self._steps_that_count(name)
        )

    def _sources(self) -> dict[str, str]:
        every = [route for rows in self.routes.values() for route in rows]
        ordered = sorted(every, key=lambda one: one.decided, reverse=True)
        return {route.move_id: self._left(route) for route in ordered}

    def _steps_that_count(self, name: str) -> list[tuple[str, int, str]]:
        """Return the steps as the model knows them, each once.

        An intent counts on the source; on the target it is what a later look noted there.
        """
        sources = self._sources()
        steps = (
            (move, attempt, "held" if step == "going" and sources[move] != name else step)
            for move, attempt, step in self.steps[name]
        )
        return [step for step, _ in groupby(steps)]


def _steps(one: Recorded, moves: set[str]) -> list[tuple[str, int, str]]:
    """Return the steps of some moves in the order of one cluster's log."""
    steps = []
    for move in moves:
        for value in one.moves.get(_PROGRESS + move.encode(), ()):
            progress = MoveProgress.decode(value)
            if progress.attempt:
                steps.append((move, progress.attempt, _step(progress)))
    if len(moves) > 1:  # the order between moves is that of their attempts
        steps.sort(key=lambda step: step[1])
    return steps


def _step(progress: MoveProgress) -> str:
    if progress.step in DECIDED:
        return "gone"
    return progress.step if progress.step in {"going", "released"} else "held"


def _sequence(items: Iterable[str]) -> str:
    return f"<<{_joined(list(items))}>>"


def _joined(items: Sequence[str]) -> str:
    return ", ".join(items)
