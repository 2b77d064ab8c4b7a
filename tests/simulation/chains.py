"""Random chains of moves between clusters, planned and unplanned, gone and released.

A model says where the clients of each home work. Clients that start now read the same, in any
order.
"""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import combinations
from pathlib import Path

from tests import moves
from tests.unit.engine.moves.control.sites import SUBJECTS, announce, watching, without, world_of

from srm.domain.moves.request import MoveRequest
from srm.domain.names.topics import TopicPartition
from srm.engine.moves.context import MoveContext
from srm.engine.moves.registers import level
from srm.errors import SrmError

HELD = {"go": "", "hold": ", held"}
SILENT_MS = 100_000
"""So long after its last announcement a client counts as dead."""


class Chain:
    """One chain, by its seed; ``played`` are its moves so far."""

    def __init__(self, seed: int, names: str, home: Path) -> None:
        self._rng = random.Random(seed)
        self._world = world_of(home, *map("".join, combinations(names, 2)), names=names)
        self._places = {name: name for name in names}
        self.played: list[str] = []

    def play(self) -> str:
        """Carry out some moves; return the first difference from the model, if there is one."""
        for number in range(self._rng.randint(2, 6)):
            self._move(f"m{number}")
            if (found := self._found()) != self._places:
                return f"{', '.join(self.played)}: clients are on {found}, not on {self._places}"
        return ""

    def _move(self, move_id: str) -> None:
        world, rng = self._world, self._rng
        source, target = rng.sample([*self._places], 2)
        end = rng.choice(["go", "go", "release", "unplanned"])
        names = ((), ()) if rng.random() < 0.4 else (("Payments",), ("audit",))
        if end == "unplanned" or rng.random() < 0.8:
            announce(world)
        else:
            world.passing(SILENT_MS)
        world.clusters[source].commit("audit", {TopicPartition("Payments", 0): 5})
        request = MoveRequest("failover", source, target, *names)
        request = replace(request, accept_stray_offsets=True, overwrite=True, accept_skips=True)
        context = world.context(source, target)
        if end == "unplanned":
            context, request = without(world, source, target), replace(request, mode="unplanned")
        plan = moves.plan(context, request, move_id)
        self.played.append(f"{end} {source}{target}{'' if names[0] else ' of everything'}")
        if plan.blocking:
            self.played[-1] += " (blocked)"
            return
        try:
            moves.hold(context, move_id)
            if end == "release":
                moves.release(context, move_id)
            else:
                announce(world)
                self._go(context, move_id, is_planned=end == "go")
                moved = [home for home, at in self._places.items() if at == source]
                self._places |= dict.fromkeys(moved, target)
        except SrmError as error:
            self.played[-1] += f" ({error})"
            moves.release(context, move_id)
        if end == "unplanned":
            context.forward.own_switch.leave(move_id)
            level(world.context(source, target))  # the lost cluster is back
        for one, other in ((source, target), (target, source)):
            world.copy(one, other)

    def _go(self, context: MoveContext, move_id: str, *, is_planned: bool) -> None:
        self._world.passing()
        if is_planned:
            moves.hold(context, move_id)
            self._world.passing()
            moves.wait_status(context, move_id)
            self._world.passing()
        moves.apply(context, move_id)
        moves.go(context, move_id)

    def _found(self) -> dict[str, str]:
        """Return by home where clients are led, whatever they read first; held ones in words."""
        found = dict[str, str]()
        for home in self._places:
            orders = ["".join(self._rng.sample([*self._places], len(self._places))) for _ in "123"]
            watchers = [watching(self._world, home, order) for order in orders]
            routes = {watcher.route(one) for watcher in watchers for one in SUBJECTS}
            places = {
                one.cluster if one.state == "go" else f"{one.cluster}, held" for one in routes
            }
            found[home] = " or ".join(sorted(places))
        return found
