"""Ask TLC whether the records that moves have left behind are what the protocol allows.

Not a second implementation of the protocol: the records become constants of docs/spec/Trace.tla,
and TLC looks for a behaviour of docs/spec/Move.tla that leaves exactly them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from tests.spec.tlc import amended, check

from srm.domain.moves.progress import DECIDED, MoveProgress
from srm.domain.moves.routing import ERA, Route, decode_route, is_home, is_subject
from srm.domain.names import internal_topics
from srm.engine.cluster_ports import Cluster

_PROGRESS = b"progress:"
_CONFIG = """CONSTANTS
    Operators = {one}
    Clients = {}
    Moves <- RecordedMoves
    Unplanned = {}
    MaxGeneration = 1
    MaxBeat <- RecordedBeats
    Off = {}
    Traces <- RecordedTraces
    SourceOf <- RecordedDirections
    Source <- RecordedSource
    NextGenerations <- RecordedGenerations
SPECIFICATION TraceSpec
SYMMETRY Symmetry
INVARIANT Progress
"""
_ENOUGH = ({"Operators": "{one}"}, {"Operators": "{one, two}"})
"""A second operator explains what only processes that overlap can leave; few records are so."""
_CLUSTERS = "PB"
_Counts = tuple[int, ...]


@dataclass(frozen=True)
class Recorded:
    """What one cluster's log has of each key, oldest first, of routes and of moves."""

    alias: str
    routing: Mapping[bytes, Sequence[bytes]]
    moves: Mapping[bytes, Sequence[bytes]]

    @classmethod
    def of(cls, cluster: Cluster) -> Recorded:
        """Read what a cluster has had, of moves that have ended, too."""
        routing, moves = (
            _values(cluster, topic) for topic in (internal_topics.ROUTING, internal_topics.MOVES)
        )
        return cls(cluster.alias, routing, moves)


def _values(cluster: Cluster, topic: str) -> dict[bytes, list[bytes]]:
    found: dict[bytes, list[bytes]] = {}

    def take(_: int, key: bytes, value: bytes | None) -> None:
        if value is not None:
            found.setdefault(key, []).append(value)

    cluster.compacted_topic(topic).scan(take)
    return found


def violations(source: Recorded, target: Recorded, folder: Path) -> list[str]:
    """Return what of the records the protocol cannot have written, one line for each subject.

    Args:
        source: records of the cluster where clients were before the first of the moves.
        target: records of the other cluster.
        folder: an empty one for TLC.
    """
    found = violations_of({"": (source, target)}, folder)
    return [line.removeprefix(": ") for line in found]


def violations_of(histories: Mapping[str, tuple[Recorded, Recorded]], folder: Path) -> list[str]:
    """Return those of several histories by name, which TLC replays at once.

    A home's route is written with the decisions that it follows, and has no hold: it is left out.
    """
    traces = {
        f"{name}: {subject.decode()}": _Trace.of(*both, subject)
        for name, both in histories.items()
        for subject in sorted({key for one in both for key in one.routing if is_subject(key)})
        if not is_home(subject.decode())
    }
    aliases = {name: tuple(one.alias for one in both) for name, both in histories.items()}
    open_ = list(dict.fromkeys(traces.values()))
    explained: dict[_Trace, _Counts] = {}
    for number, enough in enumerate(_ENOUGH):
        if open_:
            explained |= _replay(folder / f"{number}", open_, enough)
        open_ = [trace for trace in open_ if explained[trace] != trace.counts]
    return [
        f"{name}: no behaviour of the protocol leaves these records; explained are "
        f"{trace.parts(explained[trace], aliases[name.partition(': ')[0]])}"
        for name, trace in traces.items()
        if trace in open_
    ]


def _replay(
    folder: Path, traces: Sequence[_Trace], constants: Mapping[str, str]
) -> dict[_Trace, _Counts]:
    """Run TLC; return how many records of each log it can explain at most."""
    directions = {move for trace in traces for move in trace.moves}
    lines = [
        "---- MODULE Recorded ----",
        "EXTENDS Trace",
        f"RecordedTraces == {_sequence(trace.record for trace in traces)}",
        f"RecordedDirections == {' @@ '.join(sorted(directions))}",
        "RecordedMoves == DOMAIN RecordedDirections",
        f"RecordedBeats == {max(trace.beats for trace in traces)}",
        "====",
    ]
    folder.mkdir()
    (folder / "Recorded.tla").write_text("\n".join(lines))
    outcome = check(folder, "Recorded", amended(_CONFIG, constants))
    assert outcome.violated is None, outcome.output
    found = dict.fromkeys(traces, (0, 0, 0, 0))
    for number, *counts in re.findall(r'"explained",\s*(\d+)' + r",\s*(\d+)" * 4, outcome.output):
        found[traces[int(number) - 1]] = tuple(map(int, counts))
    return found


@dataclass(frozen=True)
class _Trace:
    """Routes of one subject and steps of its moves, as the model has them; the source is P.

    Generations and moves are numbered in the order of the attempts, so that the same course of
    other moves is the same trace. ``counts``: records of routes and of steps, of P and of B.
    """

    record: str
    moves: frozenset[str]
    beats: int
    counts: _Counts

    @classmethod
    def of(cls, source: Recorded, target: Recorded, subject: bytes) -> _Trace:
        places = {source.alias: "P", target.alias: "B"}
        logs = [
            [decode_route(subject, value) for value in one.routing.get(subject, ())]
            for one in (source, target)
        ]
        every = sorted((route for log in logs for route in log), key=attrgetter("rank"))
        sources = {route.move_id: _source_of(route, places) for route in every}
        names = {move: f'"{n} from {at}"' for n, (move, at) in enumerate(sources.items())}
        steps = [
            [*_steps_that_count(one, sources, place)]
            for one, place in zip((source, target), _CLUSTERS, strict=True)
        ]
        attempts = {route.generation for route in every} | {at for log in steps for _, at, _ in log}
        numbers = {at: number for number, at in enumerate(sorted(attempts), start=1)}
        routes = [
            [
                f"[generation |-> {numbers[one.generation]}, rank |-> {one.phase + 1}, "
                f'to |-> "{places[one.cluster]}", by |-> {names[one.move_id]}, '
                f"beat |-> {one.beat - 1 if one.state == 'hold' else 0}]"
                for one in log
            ]
            for log in logs
        ]
        of_steps = [
            [
                f'[generation |-> {numbers[at]}, by |-> {names[move]}, step |-> "{step}"]'
                for move, at, step in log
            ]
            for log in steps
        ]
        kinds = [
            [n for at, n in numbers.items() if bool(at % ERA) is is_one] for is_one in (True, False)
        ]
        planned, unplanned = (f"{{{_joined(list(map(str, each)))}}}" for each in kinds)
        return cls(
            f"[routes |-> {_logs(routes)}, steps |-> {_logs(of_steps)}, "
            f"planned |-> {planned}, unplanned |-> {unplanned}]",
            frozenset(f'{names[move]} :> "{at}"' for move, at in sources.items()),
            max(route.beat for route in every),
            (len(logs[0]), len(steps[0]), len(logs[1]), len(steps[1])),
        )

    def parts(self, explained: _Counts, aliases: tuple[str, str]) -> str:
        """Say how much of each log is explained."""
        return _joined(
            [
                f"on {alias} {explained[n]} of {self.counts[n]} routes and "
                f"{explained[n + 1]} of {self.counts[n + 1]} steps"
                for n, alias in zip((0, 2), aliases, strict=True)
            ]
        )


def _source_of(route: Route, places: Mapping[str, str]) -> str:
    """Return the cluster that the move of a route leaves."""
    at = places[route.cluster]
    return {"P": "B", "B": "P"}[at] if route.decided else at


def _steps_that_count(
    one: Recorded, sources: Mapping[str, str], place: str
) -> Iterator[tuple[str, int, str]]:
    """Yield the steps as the model knows them, each once.

    An intent counts on the source; on the target it is what a later look noted there.
    """
    steps = (
        (move, attempt, "held" if step == "going" and sources[move] != place else step)
        for move, attempt, step in _steps(one, set(sources))
    )
    return (step for step, _ in groupby(steps))


def _logs(logs: Sequence[Sequence[str]]) -> str:
    both = [f'"{name}" :> {_sequence(log)}' for name, log in zip(_CLUSTERS, logs, strict=True)]
    return f"({' @@ '.join(both)})"


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
