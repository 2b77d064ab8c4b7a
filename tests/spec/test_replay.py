"""What moves have left behind is replayed against the model; what they never leave is refused."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from tests import moves
from tests.simulation.test_moves import ALL_AT_ONCE, LATE, MOVES, quiet
from tests.spec.replay import Recorded, violations, violations_of
from tests.unit.engine.moves.control.moving import (
    WRITES_OF_A_MOVE,
    Killed,
    World,
    busy_world,
    config_in,
    held,
    run_through,
)

from srm.domain.moves.progress import MoveProgress, MoveStep
from srm.domain.moves.routing import ERA, Route, decode_route, is_subject
from srm.errors import ConflictError, NotFoundError
from srm_lab.testing.simulation.moves.run import FAULTS, play

__all__ = ["quiet"]

Rows = list[Route | MoveProgress]


def hold(beat: int = 1, generation: int = 1) -> Route:
    return Route(generation, "S", "hold", "m1", beat=beat, lease_ms=60_000)


def released(generation: int = 1) -> Route:
    return Route(generation, "S", "go", "m1")


def gone(generation: int = 1) -> Route:
    return Route(generation, "T", "go", "m1", decided=True)


def step(name: MoveStep, attempt: int = 1) -> MoveProgress:
    return MoveProgress("m1", step=name, attempt=attempt)


def log(alias: str, rows: Rows) -> Recorded:
    routes = [row.value() for row in rows if isinstance(row, Route)]
    steps = [row.value() for row in rows if isinstance(row, MoveProgress)]
    return Recorded(alias, {b"group:g": routes}, {b"progress:m1": steps})


HELD: Rows = [hold(), step("held")]
RELEASED: Rows = [*HELD, released(), step("released")]
UNPLANNED: Rows = [hold(1, ERA), step("held", ERA)]
LEFT: Rows = [gone(ERA), step("gone", ERA)]
ALLOWED: dict[str, tuple[Rows, Rows]] = {
    "a whole move": (
        [*HELD, hold(2), step("going"), gone(), step("gone")],
        [*HELD, hold(2), gone(), step("gone"), step("verified"), step("reported")],
    ),
    "the source died after its intent": ([*HELD, step("going")], [*HELD, gone(), step("gone")]),
    "a hold that reached the source only": (HELD, []),
    "a renewal that the source missed": (HELD, [*HELD, hold(2)]),
    "released where only the source answered": (RELEASED, HELD),
    "an intent, then a release on the target": (
        [*HELD, step("going")],
        RELEASED,
    ),
    "a second attempt after a release": (
        [*HELD, released(), step("released"), hold(1, 5), step("held", 5), step("going", 5)],
        [
            *HELD,
            released(),
            step("released"),
            hold(1, 5),
            step("held", 5),
            gone(5),
            step("gone", 5),
        ],
    ),
    "an unplanned move, whose source has returned": (LEFT, [*UNPLANNED, hold(2, ERA), *LEFT]),
    "a disaster while a move holds": (HELD, [*HELD, *UNPLANNED, *LEFT]),
    "an unplanned move that was released": (
        [],
        [*UNPLANNED, released(ERA), step("released", ERA)],
    ),
}
FORBIDDEN: dict[str, tuple[Rows, Rows]] = {
    "a late hold after go": (
        [*HELD, step("going"), gone(), step("gone")],
        [*HELD, gone(), step("gone"), hold(2)],
    ),
    "released on one cluster and gone on the other": (
        RELEASED,
        [*HELD, gone(), step("gone")],
    ),
    "a decision without an intent on the source": (HELD, [*HELD, gone(), step("gone")]),
    "gone on the source, undecided on the target": (
        [*HELD, step("going"), gone(), step("gone")],
        HELD,
    ),
    "a hold that the source does not know": ([], HELD),
    "an intent that a renewal has wiped out": ([*HELD, step("going"), step("held")], HELD),
    "a beat that the target never had": ([*HELD, hold(2)], HELD),
    "an unplanned move that nothing held": ([], LEFT),
    "an unplanned hold on the source": (UNPLANNED, UNPLANNED),
    "an unplanned move that was released and decided": (
        LEFT,
        [*UNPLANNED, released(ERA), step("released", ERA), *LEFT],
    ),
    "a planned hold after an unplanned decision": (HELD, [*UNPLANNED, *LEFT, *HELD]),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_what_the_protocol_leaves_behind_is_explained(name: str, tmp_path: Path) -> None:
    source, target = ALLOWED[name]
    assert violations(log("S", source), log("T", target), tmp_path) == []


@pytest.mark.parametrize("name", FORBIDDEN)
def test_what_the_protocol_never_leaves_behind_is_refused(name: str, tmp_path: Path) -> None:
    source, target = FORBIDDEN[name]
    (found,) = violations(log("S", source), log("T", target), tmp_path)
    assert found.startswith("group:g: no behaviour of the protocol leaves these records"), found


def test_the_records_of_a_whole_move_are_explained(tmp_path: Path) -> None:
    world = busy_world(config_in(tmp_path))
    run_through(world)
    assert violations(Recorded.of(world.p), Recorded.of(world.b), tmp_path) == []


def test_the_records_of_a_released_move_are_explained(tmp_path: Path) -> None:
    world = busy_world(config_in(tmp_path))
    moves.release(held(world), "m1")
    assert violations(Recorded.of(world.p), Recorded.of(world.b), tmp_path) == []


@pytest.mark.parametrize("then", ["goes", "is released"])
def test_the_records_of_a_move_that_was_killed_anywhere_are_explained(
    then: str, tmp_path: Path
) -> None:
    """Many kills leave the same records, so each different history is asked about once."""
    asked = set()
    for number in range(1, WRITES_OF_A_MOVE + 1, 2):
        world = busy_world(config_in(tmp_path))
        world.writes.die_at = (number, True)
        with pytest.raises(Killed):
            run_through(world)
        world.writes.die_at = None
        _carry_on(world, then)
        source, target = Recorded.of(world.p), Recorded.of(world.b)
        history = _history(source, target)
        if history not in asked:
            asked.add(history)
            place = tmp_path / str(number)
            place.mkdir()
            assert violations(source, target, place) == [], f"killed after write {number}"
    assert len(asked) > 3


def test_the_records_of_simulated_histories_are_explained(tmp_path: Path) -> None:
    """Some that the fast tier plays: operators move to and fro, clusters die, hosts come late."""
    chosen = [
        *((seed, frozenset[str]()) for seed in range(MOVES // 2)),
        *((seed, frozenset({"late"})) for seed in LATE[:1]),
        *((seed, frozenset(FAULTS)) for seed in ALL_AT_ONCE[:3]),
    ]
    histories = {}
    for seed, faults in chosen:
        sites = play(seed, faults).sites
        p, b = (Recorded.of(sites.clusters[alias]) for alias in "PB")
        histories[f"seed {seed} with {','.join(sorted(faults))}"] = (p, b)

    assert violations_of(histories, tmp_path) == []


def _carry_on(world: World, then: str) -> None:
    if then == "goes":
        run_through(world)
        return
    with suppress(ConflictError, NotFoundError):  # decided, or not even planned
        moves.release(world.context(), "m1")


def _history(*clusters: Recorded) -> str:
    """Return what of the records is not about times."""
    rows = [
        [(key, decode_route(key, v).rank[:3]) for v in values]
        for one in clusters
        for key, values in sorted(one.routing.items())
        if is_subject(key)
    ]
    steps = [
        [MoveProgress.decode(v).rank[:2] for v in values]
        for one in clusters
        for key, values in sorted(one.moves.items())
        if key.startswith(b"progress:")
    ]
    return repr((rows, steps))
