"""Logging of all srm processes, as text or as one JSON object per line.

``SRM_LOG_FORMAT`` selects the format; without it the key ``log.format`` of the configuration that
the process loads. Lines logged inside :func:`about` have their subject (flow, move) in the JSON,
and their span if there is one.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, Literal

from srm.errors import SrmError

LogFormat = Literal["text", "json"]

VARIABLE: Final = "SRM_LOG_FORMAT"
_TEXT: Final = "%(asctime)s %(levelname)s %(name)s {about}%(message)s"
_logger = logging.getLogger(__name__)
_about: ContextVar[Mapping[str, object]] = ContextVar("srm log about", default={})  # noqa: B039 -- never changed


def escape(character: str) -> str:
    """Write a character as in Python."""
    return character.encode("unicode_escape").decode()


def printable(text: str, keep: str = "", escape: Callable[[str], str] = escape) -> str:
    """Return a text with line breaks, control sequences and marks of direction as in Python.

    ``keep``: characters that stay; ``escape``: writes one of the others.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in keep else escape(one) for one in text)


class LineFormatter(logging.Formatter):
    """Formats log lines of srm; ``process`` is the subject of all lines of this process."""

    def __init__(self, form: LogFormat, process: Mapping[str, str] | None = None) -> None:
        self.form = form
        self._process = process or {}
        words = " ".join(v if k == "flow" else f"{k} {v}" for k, v in self._process.items())
        about = f"[{words}] ".replace("%", "%%") if words else ""
        super().__init__(_TEXT.format(about=about))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 -- logging's name
        """Return the message as one line, with line breaks and control sequences as in Python."""
        return printable(super().formatMessage(record))

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; a text with a stack trace has several."""
        return super().format(record) if self.form == "text" else json_line(record, self._process)


def json_line(record: logging.LogRecord, process: Mapping[str, str] | None = None) -> str:
    """Return a record as one line of JSON, with the ``event`` and ``fields`` that it may have."""
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
    """Return the ids of the active span; without OpenTelemetry imported there is none."""
    api = sys.modules.get("opentelemetry.trace")
    if api is None:
        return {}
    context = api.get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}


@contextmanager
def about(**fields: object) -> Iterator[None]:
    """Add the subject, such as ``flow="P->B"``, to all lines logged inside."""
    token = _about.set({**_about.get(), **fields})
    try:
        yield
    finally:
        _about.reset(token)


class _Wanted:
    """Format set by the configuration loaded last."""

    form: LogFormat = "text"


def log_format() -> LogFormat:
    said = os.environ.get(VARIABLE, "").strip().lower()
    return said if said in {"text", "json"} else _Wanted.form  # type: ignore[return-value]


def prefer(form: LogFormat) -> None:
    """Use a configuration's log format for :func:`set_up`, unless the environment sets one."""
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
    """Log to stderr with the subject ``process``; ``srm``: level of srm's own loggers."""
    root = logging.getLogger()
    if again or not root.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(LineFormatter(log_format(), process))
        logging.basicConfig(level=level, handlers=[handler], force=again)
    logging.getLogger("srm").setLevel(srm)


@lru_cache(1_000)
def warn_once(logger: logging.Logger, text: str) -> None:
    """Log a warning that each look of a process would repeat."""
    logger.warning("%s", text)


class Troubles(dict[str, SrmError]):
    """Failures that last, by what does not work; each is logged once, an outage with any text."""

    def __init__(self, subject: str, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._subject = subject
        self._clock = clock
        self._seen: dict[str, float] = {}

    def __setitem__(self, what: str, trouble: SrmError) -> None:
        self._seen[what] = self._clock()
        super().__setitem__(what, trouble)

    @property
    def lines(self) -> tuple[str, ...]:
        """Each failure with the age of the look that met it: the next one may still last."""
        now = self._clock()
        return tuple(
            f"{what}: {error}, {now - self._seen[what]:.0f} s ago"
            for what, error in [*self.items()]
        )

    def report(self, what: str, error: Exception) -> SrmError:
        trouble = error if isinstance(error, SrmError) else SrmError(f"unexpected: {error!r}")
        last = self.get(what)
        lasts = last is not None and last.retriable and trouble.retriable
        if not lasts and str(last) != str(trouble):
            unexpected = None if trouble is error else error
            text = "%s: %s fails and is tried again: %s"
            _logger.warning(text, self._subject, what, trouble, exc_info=unexpected)
        self[what] = trouble
        return trouble

    def end(self, what: str) -> None:
        if self.pop(what, None) is not None:
            _logger.warning("%s: %s works again", self._subject, what)

    @property
    def first(self) -> SrmError | None:
        return next(iter(tuple(self.values())), None)
