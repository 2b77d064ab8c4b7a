"""Playing seeds of moves: one history each, judged at its end."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from srm.domain.move.routes import group_subject
from srm.testing.simulation.moves import oracle
from srm.testing.simulation.moves.clients import Clients, Group
from srm.testing.simulation.moves.director import Director
from srm.testing.simulation.moves.sites import Sites

FAULTS: Final = ("markers", "disasters", "late", "clocks")
"""Kinds of what may befall a history, apart from planned moves.

With ``markers`` consumers commit past markers, as Java's do; ``late`` are hosts that stop in a step
and wake up after others have continued; ``clocks`` are hosts whose clocks are wrong.
"""


@dataclass
class Played:
    """What became of one seed."""

    seed: int
    problems: list[str] = field(default_factory=list)
    episodes: list[str] = field(default_factory=list)
    records: int = 0


def play(
    seed: int, faults: frozenset[str] = frozenset(), say: Callable[[str], None] = lambda _: None
) -> Played:
    """Play one seed and judge what it has left."""
    rng = random.Random(seed)  # noqa: S311 - to be repeated, not to be secret
    sites = Sites(rng, rng.randint(1, 2), {"reverse": rng.random() < 0.5})
    groups = [
        Group(
            f"g{number}",
            rng.choice(("latest", "earliest")),
            passes_markers=rng.random() < 0.7 and "markers" in faults,
            commits=rng.choice((1.0, 0.5)),
        )
        for number in range(rng.randint(1, 3))
    ]
    clients = Clients(sites, groups)
    start = sites.clock()

    def line(text: str) -> None:
        say(f"{(sites.clock() - start) / 1000:8.1f}  {text}")

    director = Director(sites, clients, rng, line, faults)
    clients.step(produce=False)  # whoever starts at the latest record is there before the first
    director.tick(rng.randint(4, 16))
    director.emit()  # of a group that was never seen a disaster leaves nothing
    for _ in range(rng.randint(1, 4)):
        if "disasters" in faults and rng.random() < 0.6:
            director.disaster()
            if rng.random() < 0.8:
                director.settle()
                director.tick(4)
        else:
            director.planned()
        director.tick(rng.randint(0, 12))
        if director.problems:
            break
    if not director.problems:
        director.home()
    found = list(director.problems)
    if not found:
        _calm(director)
        found = list(oracle.ends(sites))
        found += oracle.judge(sites, clients, director.ended())
        found += _strays(director)
    return Played(seed, found, director.episodes, sites.serial)


def _calm(director: Director) -> None:
    """Copy and read all that there is."""
    for _ in range(200):
        director.sites.clock.advance(500)
        for copier in director.sites.copiers.values():
            copier.step()
        if director.clients.drain():
            return


def _strays(director: Director) -> list[str]:
    """Say which applications are not where the last move has sent them, or cannot write there."""
    clients, found = director.clients, []
    for group in clients.groups:
        where = clients.routes.where(group_subject(group.name))
        if where != director.at:
            found.append(
                f"group {group.name} is routed to {where or 'no cluster'}, not to {director.at}"
            )
    denied = director.sites.clusters[director.at].write_denials(["Payments"])
    if denied:
        found.append(f"writes to {', '.join(denied)} are denied on {director.at}, which is in use")
    return found
