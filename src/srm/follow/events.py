"""One log line for each event, as text or JSON."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from srm.logs import json_line, log_format

log = logging.getLogger("srm.follow")


def say(event: str, message: str, level: int = logging.INFO, **fields: object) -> None:
    """Log one event; only JSON shows the fields, so the message repeats the important ones."""
    log.log(level, message, extra={"event": event, "fields": fields})


class EventFormatter(logging.Formatter):
    """Formats events and all other log records of srm as one line each."""

    def __init__(self, *, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        if self._as_json:
            record.event = getattr(record, "event", "log")
            return json_line(record)
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        message = " ".join(record.getMessage().split())
        if record.exc_info:
            message += f" ({self.formatException(record.exc_info).splitlines()[-1]})"
        level = "" if record.levelno <= logging.INFO else f"{record.levelname} "
        return f"{time} srm follow: {level}{message}"


def use_event_log(*, as_json: bool) -> None:
    """Write all log lines of this process as events, those of srm.follow from level INFO."""
    for handler in logging.getLogger().handlers:
        handler.setFormatter(EventFormatter(as_json=as_json or log_format() == "json"))
    if not log.isEnabledFor(logging.INFO):
        log.setLevel(logging.INFO)
