"""Plays seeds of moves: one history each, judged record by record, over both clusters as one.

Each record that a group has lost, skipped or read again has to be in what the reports said.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from srm.domain.moves.routing import group_subject
from srm.domain.names.topics import TopicPartition
from srm_lab.testing.simulation.moves.director import Applications, Director, Ended, Group
from srm_lab.testing.simulation.moves.sites import TOPIC, Sites

FAULTS: Final = ("markers", "disasters", "late", "clocks", "names")
"""Kinds of what may befall a history, apart from planned moves.

With ``markers`` consumers commit past markers, as Java's do; ``late`` are hosts that stop in a step
and wake up after others have continued; ``clocks`` are hosts whose clocks are wrong. With ``names``
the ids of moves do not sort by time.
"""


@dataclass
class Played:
    """Result of one seed, and the sites as it has left them."""

    seed: int
    sites: Sites
    problems: list[str] = field(default_factory=list)
    episodes: list[str] = field(default_factory=list)


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
    clients = Applications(sites, groups)
    start = sites.clock()

    def line(text: str) -> None:
        say(f"{(sites.clock() - start) / 1000:8.1f}  {text}")

    director = Director(sites, clients, rng, line, faults)
    clients.step(produce=False)  # clients that start at the latest record start before the first
    director.tick(rng.randint(4, 16))
    for group in (one for one in groups if one.reset == "latest"):
        group.commit()  # of a group that has committed nothing a disaster leaves no place
    director.emit()
    for _ in range(rng.randint(1, 4)):
        if "disasters" in faults and rng.random() < 0.6:
            director.disaster()
            if rng.random() < 0.8:
                director.settle()
                director.tick(4)
        else:
            director.move_over()
        director.tick(rng.randint(0, 12))
        if director.problems:
            break
    if not director.problems:
        director.home()
    found = list(director.problems)
    if not found:
        _calm(director)
        found = list(_copy_gaps(sites))
        found += judge(sites, clients, director.results())
        found += _strays(director)
    return Played(seed, sites, found, director.episodes)


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
        where = clients.routes.cluster_of(group_subject(group.name))
        if where != director.at:
            found.append(
                f"group {group.name} is routed to {where or 'no cluster'}, not to {director.at}"
            )
    denied = director.sites.clusters[director.at].write_denials(["Payments"])
    if denied:
        found.append(f"writes to {', '.join(denied)} are denied on {director.at}, which is in use")
    return found


def judge(sites: Sites, clients: Applications, moves: list[Ended]) -> Iterator[str]:
    """Yield what is wrong; all clusters are up, nothing is paused and all groups have read."""
    yield from _copies(sites)
    gone = _left_on_the_source(moves)
    uncommitted = {group.name: group.uncommitted for group in clients.groups}
    for name, rows in clients.readings().items():
        missing = [serial for serial in clients.born if serial not in rows]
        said = sum(_count_skips(move, name) for move in moves) + gone
        if len(missing) > said:
            yield (
                f"group {name} never gets {len(missing)} records, reports explain {said}: "
                f"{missing[:5]} of {Counter(clients.born[s] for s in missing)}"
            )
        again = Counter[int]()
        for serial, readings in rows.items():
            # Its application alone knows what it had read without a commit.
            for one in readings[1 + (serial in uncommitted[name]) :]:
                again[one.move] += 1
        for number, count in sorted(again.items()):
            allowed = sum(_count_repeats(move, name) for move in moves if move.number == number)
            # What was merged comes late, in any time after its settlement.
            allowed += sum(_count_merged(move, name) for move in moves if move.number <= number)
            if count > allowed:
                yield (
                    f"group {name} reads {count} records again after move m{number}, reports "
                    f"explain {allowed}"
                )


def _copies(sites: Sites) -> Iterator[str]:
    """Look for records that occur twice on a cluster."""
    for alias in sites.clusters:
        seen = Counter(
            serial
            for (where, _), serials in sites.records.items()
            if where == alias
            for serial in serials
            if serial is not None
        )
        doubled = [serial for serial, count in seen.items() if count > 1]
        if doubled:
            yield f"{len(doubled)} records occur twice on {alias}: {doubled[:5]}"


def _count_skips(move: Ended, group: str) -> int:
    found = move.report.groups.get(group)
    said = 0 if found is None else max(found.skipped, found.planned_skipped or 0)
    if move.report.forecast is not None:
        said += sum(one.skipped for one in move.report.forecast.groups if one.group == group)
    return said


def _count_repeats(move: Ended, group: str) -> int:
    found = move.report.groups.get(group)
    said = 0 if found is None else max(found.re_read, found.planned_re_read or 0)
    rows = () if found is None else found.partitions
    # The plan warns of these: auto.offset.reset of the clients says where they start.
    by_reset = sum(row.lag for row in rows if row.state == "no-commit")
    if move.report.forecast is not None:
        forecast = [one for one in move.report.forecast.groups if one.group == group]
        said = max([said, *(one.re_read for one in forecast)])
    return said + by_reset


def _count_merged(move: Ended, group: str) -> int:
    """Return how many records of a residue a group had read before it was copied after all."""
    return sum(
        one.groups[group].records
        for one in move.outcomes
        if group in one.groups and "merge" in one.choices.values()
    )


def _left_on_the_source(moves: list[Ended]) -> int:
    """Return how many records were left on a source by decision."""
    return sum(
        one.records
        for move in moves
        for one in move.outcomes
        if "merge" not in one.choices.values()
    )


def _copy_gaps(sites: Sites) -> Iterator[str]:
    """Yield what is not copied although everything is well again."""
    for flow, copier in sites.copiers.items():
        for number in range(sites.partitions):
            place = TopicPartition(TOPIC, number)
            end = sites.clusters[flow.source].log_ends([place])[place]
            if copier.positions[number].source_next < end:
                yield f"{flow} has not copied {place} to its end {end}"
