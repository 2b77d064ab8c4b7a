"""HTML pages: self-contained files in one style (``templates/page.css``)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from srm.domain.moves.report.evidence import PartitionReport
from srm.domain.moves.report.report import GroupReport, MoveReport
from srm.domain.moves.report.revisions import KeptReport
from srm.extras import library
from srm.pages.moves import re_read_text, re_read_texts, residue_text, rpo_text, verdict_text
from srm.pages.outcomes import costs
from srm.pages.timeline import move_timeline

if TYPE_CHECKING:
    import jinja2
else:
    jinja2 = library("jinja2")

SHOWN_PARTITIONS: Final = 3_000
"""Rows of offsets on one page; beyond that it shows only deviations from the plan."""


def render_page(template: str, package: str = "srm.pages", **values: object) -> str:
    """Render a template, which can include the shared ``page.css``.

    ``package``: package of the template.
    """
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader(
            [jinja2.PackageLoader(package), jinja2.PackageLoader("srm.pages")]
        ),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["clock"] = _clock
    return environment.get_template(template).render(values)


def report_page(kept: KeptReport) -> str:
    """Return a stored report of a move as a self-contained page."""
    return render_page(
        "move_report.html",
        report=kept.report,
        offsets={name: _offsets(kept.report, group) for name, group in kept.report.groups.items()},
        signature=kept.signed.signature,
        sha256=kept.signed.sha256,
        timeline=move_timeline(kept.report),
        costs=costs(kept.report),
        lost=rpo_text(kept.report),
        re_read=re_read_text(kept.report),
        re_reads=re_read_texts(kept.report),
        watched=residue_text(kept.report),
        verdict=verdict_text(kept.report),
    )


@dataclass(frozen=True, slots=True)
class _Offsets:
    """Shown partitions of a group; ``hidden`` counts those that went as planned."""

    shown: tuple[PartitionReport, ...]
    hidden: int


def _offsets(report: MoveReport, group: GroupReport) -> _Offsets:
    rows = sum(len(each.partitions) for each in report.groups.values())
    if rows <= SHOWN_PARTITIONS:
        return _Offsets(group.partitions, 0)
    shown = tuple(one for one in group.partitions if not one.as_planned)
    return _Offsets(shown, len(group.partitions) - len(shown))


def _clock(time_ms: int) -> str:
    return (
        datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"
    )
