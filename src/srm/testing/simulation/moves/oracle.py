"""Judges a history of moves record by record, over both clusters as one.

Each record that a group has lost, skipped or read again has to be in what the reports said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from srm.domain.topics import TopicPartition
from srm.testing.simulation.moves.clients import Clients
from srm.testing.simulation.moves.director import Ended
from srm.testing.simulation.moves.sites import TOPIC, Sites


def judge(sites: Sites, clients: Clients, moves: list[Ended]) -> Iterator[str]:
    """Yield what is wrong; all clusters are up, nothing is paused and all groups have read."""
    yield from _copies(sites)
    gone = _left_on_the_source(moves)
    uncommitted = {group.name: group.uncommitted for group in clients.groups}
    for name, rows in clients.readings().items():
        missing = [serial for serial in clients.born if serial not in rows]
        said = sum(_skipped(move, name) for move in moves) + gone
        if len(missing) > said:
            yield (
                f"group {name} never gets {len(missing)} records, reports explain {said}: "
                f"{missing[:5]} of {Counter(clients.born[s] for s in missing)}"
            )
        again = Counter[int]()
        for serial, readings in rows.items():
            # Its application alone knows what it had read without a commit.
            for one in readings[1 + (serial in uncommitted[name]) :]:
                again[one.moves] += 1
        for number, count in sorted(again.items()):
            allowed = sum(_read_again(move, name) for move in moves if move.number == number)
            # What was merged comes late, in any time after its settlement.
            allowed += sum(_merged(move, name) for move in moves if move.number <= number)
            if count > allowed:
                yield (
                    f"group {name} reads {count} records again after move m{number}, reports "
                    f"explain {allowed}"
                )


def _copies(sites: Sites) -> Iterator[str]:
    """Look for records that stand twice on a cluster."""
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
            yield f"{len(doubled)} records stand twice on {alias}: {doubled[:5]}"


def _skipped(move: Ended, group: str) -> int:
    found = move.report.groups.get(group)
    said = 0 if found is None else max(found.skipped, found.planned_skipped or 0)
    if move.report.forecast is not None:
        said += sum(one.skipped for one in move.report.forecast.groups if one.group == group)
    return said


def _read_again(move: Ended, group: str) -> int:
    found = move.report.groups.get(group)
    said = 0 if found is None else max(found.re_read, found.planned_re_read or 0)
    if move.report.forecast is not None:
        forecast = [one for one in move.report.forecast.groups if one.group == group]
        said = max([said, *(one.re_read for one in forecast)])
    return said


def _merged(move: Ended, group: str) -> int:
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


def ends(sites: Sites) -> Iterator[str]:
    """Yield what is not copied although everything is well again."""
    for flow, copier in sites.copiers.items():
        for number in range(sites.partitions):
            place = TopicPartition(TOPIC, number)
            end = sites.clusters[flow.source].log_ends([place])[place]
            if copier.positions[number].source_next < end:
                yield f"{flow} has not copied {place} to its end {end}"
