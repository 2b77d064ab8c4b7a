"""HTML pages: self-contained files, all in one style (``templates/page.css``)."""

from __future__ import annotations

from datetime import UTC, datetime

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from srm.domain.move.plan import MovePlan
from srm.domain.move.progress import MoveProgress
from srm.domain.move.report import MoveReport
from srm.pages.moves import residue_text


def render_page(template: str, package: str = "srm.pages", **values: object) -> str:
    """Render a template; the shared ``page.css`` is there to be included.

    Args:
        template: file in the folder ``templates`` of the package.
        package: whose template it is.
        values: what the template shows; a name it lacks is an error.
    """
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader("srm.pages")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["clock"] = _clock
    return environment.get_template(template).render(values)


def move_page(plan: MovePlan, progress: MoveProgress, report: MoveReport) -> str:
    """Return the report of a move as one self-contained page."""
    return render_page(
        "move_report.html",
        plan=plan,
        progress=progress,
        report=report,
        watched=residue_text(report),
    )


def _clock(time_ms: int) -> str:
    return (
        datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"
    )
