"""Plans of moves for an approval: Markdown and a page.

Texts are limited in length for any number of groups; omitted rows are counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from srm.domain.moves.records.forecast import Forecast
from srm.domain.moves.records.plan import MovePlan
from srm.domain.text.amount import amount
from srm.pages.html import render_page
from srm.pages.markdown import bullets, escape, table
from srm.pages.moves import ago, as_text, number, plan_view, seconds

SHOWN_ROWS: Final = 30


def approval_subject(plan: MovePlan) -> str:
    """Return the question for the approval of a move."""
    request = plan.request
    if request.is_unplanned:
        return f"Abandon {request.source} and move {_groups(plan)} to {request.target}?"
    return f"Move {_groups(plan)} from {request.source} to {request.target}?"


def approval_text(plan: MovePlan) -> str:
    """Return the facts for the approval of a move as Markdown."""
    return "\n".join(_text(plan)) + "\n"


def plan_page(plan: MovePlan) -> str:
    """Return a plan as a self-contained page."""
    return render_page("plan.html", plan=plan, text=as_text(plan_view(plan)))


def _text(plan: MovePlan) -> Iterator[str]:
    request = plan.request
    topics = ", ".join(f"`{topic}`" for topic in plan.topics[:SHOWN_ROWS])
    more = f" and {len(plan.topics) - SHOWN_ROWS} more" if len(plan.topics) > SHOWN_ROWS else ""
    yield f"Topics: {topics}{more}. Move `{plan.move_id}`. **Nothing has been changed yet.**"
    yield ""
    if plan.forecast is not None:
        yield (
            f"**{request.source} is abandoned:** the flow {request.flow} is paused "
            f"until an operator resumes it, {request.source} is not queried, and "
            f"groups resume on {request.target} from their last checkpoint without a wait."
        )
        yield ""
        yield f"**{escape(plan.forecast.line(request.source))}**"
        yield ""
        yield from _forecast(plan.forecast, request.source)
    else:
        yield (
            f"Clients are held for at most {request.wait_seconds:g} s until all is copied, and "
            f"resume on {request.target}; nothing is lost."
        )
        yield ""
        yield from table(
            ("group", "members", "still to read", "read again", "skipped"),
            (
                (g.group, *map(number, (len(g.members), g.lag, g.re_read, g.total_skipped)))
                for g in plan.groups
            ),
            SHOWN_ROWS,
        )
    yield from bullets("Warning", plan.warnings, SHOWN_ROWS)


def _forecast(forecast: Forecast, source: str) -> Iterator[str]:
    yield from table(
        ("topic", "not copied", "at most", "seconds", f"{source} last answered"),
        (
            (
                topic.topic,
                *(number(topic.not_copied), number(topic.at_most), seconds(topic.seconds)),
                ago(topic.age_ms),
            )
            for topic in forecast.topics
        ),
        SHOWN_ROWS,
    )
    yield from table(
        ("group", "read again at most", "skipped", "checkpoint written"),
        (
            (group.group, number(group.re_read), number(group.skipped), ago(group.age_ms))
            for group in forecast.groups
        ),
        SHOWN_ROWS,
    )
    yield from bullets(
        "Unknown", [line for topic in forecast.topics for line in topic.unknown], SHOWN_ROWS
    )
    yield from bullets("Known by name only", forecast.unseen, SHOWN_ROWS)
    yield from bullets("Open transaction", forecast.transactions, SHOWN_ROWS)
    yield from bullets("Note", forecast.notes, SHOWN_ROWS)


def _groups(plan: MovePlan) -> str:
    names = plan.group_names
    return f"group {names[0]}" if len(names) == 1 else amount(len(names), "group")
