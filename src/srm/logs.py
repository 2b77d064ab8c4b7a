"""How processes of srm log, in one place: as text for people, or a JSON object a line for machines.

``SRM_LOG_FORMAT`` says which; without it the key ``log.format`` of the configuration that the
process loads. What a line is about (its flow, its move) is in the JSON of all lines that are logged
inside of :func:`about`, and the span in which it was logged where there is one.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Final, Literal

LogFormat = Literal["text", "json"]

VARIABLE: Final = "SRM_LOG_FORMAT"
_TEXT: Final = "%(asctime)s %(levelname)s %(name)s {about}%(message)s"
_about: ContextVar[Mapping[str, object]] = ContextVar("srm log about", default={})  # noqa: B039 -- never changed


class LineFormatter(logging.Formatter):
    """Formats what srm logs; ``process`` is what all lines of this process are about."""

    def __init__(self, form: LogFormat, process: Mapping[str, str] | None = None) -> None:
        self.form = form
        self._process = process or {}
        words = " ".join(v if k == "flow" else f"{k} {v}" for k, v in self._process.items())
        about = f"[{words}] ".replace("%", "%%") if words else ""
        super().__init__(_TEXT.format(about=about))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 -- logging's name
        """Return the message as one line of text, whatever a name in it brings along.

        Groups, paths and users may be called anything: what would begin a line of its own, or
        tell a terminal something, is written as in Python.
        """
        line = super().formatMessage(record)
        if line.isprintable():
            return line
        return "".join(
            each if each.isprintable() else each.encode("unicode_escape").decode() for each in line
        )

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, or lines where text has a stack trace."""
        return super().format(record) if self.form == "text" else json_line(record, self._process)


def json_line(record: logging.LogRecord, process: Mapping[str, str] | None = None) -> str:
    """Return a record as one line of JSON.

    ``time`` is RFC 3339 in UTC. A record may have an ``event``, its name for programs, and
    ``fields`` of its own.
    """
    line: dict[str, object] = {
        "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
        "level": record.levelname,
        "logger": record.name,
        "message": record.getMessage(),
        **(process or {}),
        **_about.get(),
        **_span(),
    }
    if event := getattr(record, "event", ""):
        line["event"] = event
    if record.exc_info:
        line["exception"] = logging.Formatter().formatException(record.exc_info)
    return json.dumps(line | getattr(record, "fields", {}), default=str)


def _span() -> dict[str, object]:
    """Name the active span; nobody has begun one where OpenTelemetry is not imported."""
    api = sys.modules.get("opentelemetry.trace")
    if api is None:
        return {}
    context = api.get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}


@contextmanager
def about(**fields: object) -> Iterator[None]:
    """Let all lines that are logged inside say what they are about, as in ``flow="P->B"``."""
    token = _about.set({**_about.get(), **fields})
    try:
        yield
    finally:
        _about.reset(token)


class _Wanted:
    """What the configuration that was loaded last asks for."""

    form: LogFormat = "text"


def log_format() -> LogFormat:
    """Return the format that this process logs in."""
    said = os.environ.get(VARIABLE, "").strip().lower()
    return said if said in {"text", "json"} else _Wanted.form  # type: ignore[return-value]


def prefer(form: LogFormat) -> None:
    """Log as a configuration says, unless the environment says otherwise.

    Only lines of :func:`set_up` change: a host such as Airflow logs in its own way.
    """
    _Wanted.form = form
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, LineFormatter):
            handler.formatter.form = log_format()


def set_up(
    level: int = logging.WARNING,
    *,
    srm: int = logging.NOTSET,
    process: Mapping[str, str] | None = None,
    again: bool = False,
) -> None:
    """Let this process log to stderr.

    Args:
        level: the least level that is logged.
        srm: that of srm's own loggers, where it is another one.
        process: what all its lines are about.
        again: replace handlers that are there; without it they stay.
    """
    root = logging.getLogger()
    if again or not root.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(LineFormatter(log_format(), process))
        logging.basicConfig(level=level, handlers=[handler], force=again)
    logging.getLogger("srm").setLevel(srm)
