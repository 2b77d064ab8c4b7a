"""Forecast against outcome: what a disaster was said to cost, and what of it was found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from srm.domain.moves.records.outcome import Outcome
from srm.domain.moves.report.report import MoveReport
from srm.domain.text.amount import amount


@dataclass(frozen=True, slots=True)
class TopicCost:
    """One topic; None is "not known", or not known yet.

    Forecast: ``not_copied``, ``at_most``, ``seconds`` of the topic that is, and how long before
    the source had last answered. Found when it returned: ``residue``, records that only it has,
    with their first and last time, ``lost`` there of what was copied, and ``gone`` by retention;
    ``choice`` says what became of the residue.
    """

    topic: str
    not_copied: int | None
    at_most: int | None
    seconds: float | None
    age_seconds: float | None
    residue: int | None = None
    first_ms: int | None = None
    last_ms: int | None = None
    only_copied: int | None = None
    gone: int | None = None
    choice: str = ""


@dataclass(frozen=True, slots=True)
class GroupCost:
    """One group: read again at most, and read again; and what it had read of the residue."""

    group: str
    re_read_at_most: int | None
    re_read: int | None
    checkpoint_age_seconds: float | None
    read_of_residue: int | None = None


@dataclass(frozen=True, slots=True)
class Costs:
    """Both, and what the forecast could not know; ``found`` is how the source returned."""

    made_ms: int | None
    topics: tuple[TopicCost, ...]
    groups: tuple[GroupCost, ...]
    unknown: tuple[str, ...] = ()
    found: str = ""
    found_ms: int | None = None
    found_by: str = ""


def costs(report: MoveReport) -> Costs | None:
    """Set forecast against outcome; None where there is neither."""
    forecast, outcome = report.forecast, report.outcome
    if forecast is None and outcome is None:
        return None
    return Costs(
        made_ms=forecast.made_ms if forecast else None,
        topics=tuple(_topics(report)),
        groups=tuple(_groups(report)),
        unknown=tuple(_unknown(report)),
        found=outcome.source_return if outcome else "",
        found_ms=outcome.time_ms if outcome else None,
        found_by=outcome.by if outcome else "",
    )


def _topics(report: MoveReport) -> Iterator[TopicCost]:
    said = {topic.topic: topic for topic in (report.forecast.topics if report.forecast else ())}
    found = {entry.topic for entry in (report.outcome.partitions if report.outcome else ())}
    for name in sorted({*said, *found}):
        topic = said.get(name)
        yield TopicCost(
            name,
            not_copied=topic.not_copied if topic else None,
            at_most=topic.at_most if topic else None,
            seconds=topic.seconds if topic else None,
            age_seconds=_seconds(topic.age_ms if topic else None),
            **_outcome_fields(name, report.outcome),
        )


def _outcome_fields(topic: str, outcome: Outcome | None) -> dict[str, Any]:
    if outcome is None:
        return {}
    entries = [entry for entry in outcome.partitions if entry.topic == topic]
    if outcome.source_return == "rebuilt" and not entries:
        return {}  # what the source held is gone with it
    return {
        "residue": sum(entry.records for entry in entries),
        "first_ms": min((e.first_ms for e in entries if e.first_ms is not None), default=None),
        "last_ms": max((e.last_ms for e in entries if e.last_ms is not None), default=None),
        "only_copied": sum(entry.only_copied for entry in entries),
        "gone": sum(entry.gone for entry in entries),
        "choice": outcome.choices.get(topic, ""),
    }


def _groups(report: MoveReport) -> Iterator[GroupCost]:
    said = {group.group: group for group in (report.forecast.groups if report.forecast else ())}
    found = report.outcome.groups if report.outcome else {}
    for name in sorted({*said, *found}):
        group, moved = said.get(name), report.groups.get(name)
        yield GroupCost(
            name,
            re_read_at_most=group.re_read if group else None,
            re_read=moved.re_read if moved else None,
            checkpoint_age_seconds=_seconds(group.age_ms if group else None),
            read_of_residue=found[name].records if name in found else None,
        )


def _unknown(report: MoveReport) -> Iterator[str]:
    forecast = report.forecast
    if forecast is None:
        return
    for topic in forecast.topics:
        yield from topic.unknown
    for group in forecast.unseen:
        yield f"group {group} is known by name only: where it starts is left to its clients"
    for transaction in forecast.transactions:
        yield f"open transaction: {transaction}"


def _seconds(age_ms: int | None) -> float | None:
    return None if age_ms is None else age_ms / 1000


def outcome_lines(report: MoveReport) -> Iterator[str]:
    """Say in lines what was forecast of a disaster and what was found; none of a planned move."""
    forecast, found = report.forecast, report.outcome
    if forecast is not None:
        bound = (
            "nobody knows how many at most"
            if forecast.at_most is None
            else f"at most {forecast.at_most:,}"
        )
        yield f"forecast: {amount(forecast.not_copied, 'record')} not copied, {bound}"
    if found is None:
        return
    read = sum(group.records for group in found.groups.values())
    gone = sum(entry.only_copied for entry in found.partitions)
    without = f", without {gone:,} that had been copied" if gone else ""
    yield (
        f"outcome: {amount(found.records, 'record')} had not been copied; groups had read "
        f"{read:,} of them; "
        f"{report.source} came back {found.source_return}{without} (settled by {found.by})"
    )
    for unread in found.unread:
        yield f"not in the outcome: {unread}"
