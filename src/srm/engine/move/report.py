"""Keep the report of a move, as JSON and HTML."""

from __future__ import annotations

from datetime import UTC, datetime

from jinja2 import Environment, PackageLoader, StrictUndefined

from srm.domain.move.plan import MovePlan
from srm.domain.move.progress import MoveProgress
from srm.domain.move.report import MoveReport, build_report
from srm.engine.move.control import Change
from srm.engine.move.registers import record
from srm.engine.move.store import MoveContext, MoveStore


def report(context: MoveContext, move_id: str) -> MoveReport:
    """Compute the report of a move at its present step and keep it, as JSON and HTML.

    Raises:
        NotFoundError: there is no such move.
    """
    plan, progress = MoveStore(context).load(move_id)
    if progress.step in {"gone", "verified"}:
        progress = progress.at("reported", context.now_ms())
    result = build_report(plan, progress)
    documents = {
        f"report:{move_id}": result.value(),
        f"html:{move_id}": render_html(plan, progress, result).encode(),
    }
    record(context, Change(progress=(progress,), documents=documents), tolerate_source=True)
    return result


def report_html(context: MoveContext, move_id: str) -> str:
    """Return the report of a move as one self-contained HTML page.

    Raises:
        NotFoundError: there is no such move.
    """
    store = MoveStore(context)
    plan, progress = store.load(move_id)
    return store.html(move_id) or render_html(plan, progress, build_report(plan, progress))


def render_html(plan: MovePlan, progress: MoveProgress, result: MoveReport) -> str:
    """Render the report page."""
    environment = Environment(
        loader=PackageLoader("srm.engine", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["clock"] = _clock
    template = environment.get_template("move_report.html")
    return template.render(plan=plan, progress=progress, report=result)


def _clock(time_ms: int) -> str:
    return (
        datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"
    )
