"""Comparison of the forecast cost of a disaster with its outcome."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from srm.domain.moves.records.outcome import Outcome
from srm.domain.moves.report.report import MoveReport
from srm.domain.text.amount import amount


@dataclass(frozen=True, slots=True)
class TopicCost:
    """Cost of one topic; None is unknown.

    Forecast: ``not_copied`` and ``at_most`` records, the same in ``seconds``, and
    ``age_seconds``, the time since the last answer of the source.
    Outcome: ``residue``, records only on the source, with first and last time; ``only_copied``,
    copied records that it lost; ``gone`` by retention; ``choice``, the treatment of the residue.
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
    """Cost of one group: forecast and actual records read again, and residue that it had read."""

    group: str
    re_read_at_most: int | None
    re_read: int | None
    checkpoint_age_seconds: float | None
    read_of_residue: int | None = None


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs by topic and group, and unknowns of the forecast; ``found`` is the source's return."""

    made_ms: int | None
    topics: tuple[TopicCost, ...]
    groups: tuple[GroupCost, ...]
    unknown: tuple[str, ...] = ()
    found: str = ""
    found_ms: int | None = None
    found_by: str = ""


def costs(report: MoveReport) -> Costs | None:
    """Compare forecast and outcome; None if the report has neither."""
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
        return {}  # the records of the source are lost with it
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
        yield f"group {group} is known by name only: its clients decide where it starts"
    for transaction in forecast.transactions:
        yield f"open transaction: {transaction}"


def _seconds(age_ms: int | None) -> float | None:
    return None if age_ms is None else age_ms / 1000


def outcome_lines(report: MoveReport) -> Iterator[str]:
    """Return forecast and outcome of a disaster as lines; none for a planned move."""
    forecast, found = report.forecast, report.outcome
    if forecast is not None:
        bound = (
            "upper bound unknown" if forecast.at_most is None else f"at most {forecast.at_most:,}"
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
        f"{report.source} returned {found.source_return}{without} (settled by {found.by})"
    )
    for unread in found.unread:
        yield f"not in the outcome: {unread}"
