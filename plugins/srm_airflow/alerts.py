"""Notifications about moves and late copies by a notifier of the user's choice; none blocks a move.

The properties file names the class and its arguments. In these ``{{ srm.text }}`` is the message
and ``srm.event`` one of :data:`Event`. The fields of the move are ``move_id``, ``operation``,
``mode``, ``source`` and ``target``.
"""

from __future__ import annotations

import asyncio
import json
import logging
import pkgutil
from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import Any, Final, Literal

from srm.config.loader import load_config
from srm.config.model import FlowConfig
from srm.config.values import NEVER
from srm.domain.names.topics import Flow
from srm.errors import SrmError
from srm_airflow.outcome import reason_of
from srm_airflow.settings import dag_id, flow_id, settled_cron

logger = logging.getLogger(__name__)

Event = Literal["approval", "waiting", "blocked", "done", "late"]
"""The move needs an approval; a step waits too long; a step failed; the report is written.

Without a move: records are not copied within the RPO of their flow.
"""

FIELDS: Final = ("move_id", "operation", "mode", "source", "target")


def notify(
    event: Event,
    what: str,
    planned: Mapping[str, Any],
    context: Mapping[str, Any],
    config_path: str | None = None,
) -> None:
    """Notify the notifier of the move's flow, if it has one; log a failure.

    ``what``: the same as one line of text. ``planned``: the move, as the planning task describes
    it, or the form of one. ``context``: of the sending task; templates in the notifier's arguments
    may use it. ``config_path``: srm's properties file; by default the one of the environment.
    """
    try:
        settings = _settings(planned, config_path)
        if not settings.failover_notifier:
            return
        known = {name: str(planned.get(name, "")) for name in FIELDS}
        message = {"event": event, "text": f"{_name(known)}: {what}", **known}
        notifier = pkgutil.resolve_name(settings.failover_notifier)
        made = notifier(**json.loads(settings.failover_notifier_arguments))
        made({**context, "srm": message})
    except Exception as error:  # noqa: BLE001 - a move does not fail for want of a message
        logger.warning("The notifier failed, so this was not sent: %s: %r", what, error)


def alert_failure(context: Mapping[str, Any], planned: Mapping[str, Any] | None = None) -> None:
    """Notify that a task has failed for good: callback of the tasks of a move.

    ``planned``: the move; by default as the run has planned it, or its form where it has not.
    """
    try:
        planned = planned or context["ti"].xcom_pull(task_ids="plan") or context["params"]
        why = reason_of(error) if (error := context.get("exception")) else "see its log"
        notify("blocked", f"task {context['ti'].task_id} failed: {why}", planned, context)
    except Exception as error:  # noqa: BLE001 - called in whatever state Airflow is in
        logger.warning("The notifier could not be called for a failed task: %r", error)


async def alert_late(context: Mapping[str, Any], flow: str, config_path: str) -> None:
    """Notify that a flow's RPO is missed: callback of a deadline, in the triggerer."""
    pair = Flow.parse(flow)
    move = {"operation": "copy", "source": pair.source, "target": pair.target}
    since = context["dag_run"]["queued_at"]
    what = f"not all records written before {since} are copied: srm why --flow '{flow}'"
    await asyncio.to_thread(notify, "late", what, move, context, config_path)


class Patience:
    """Reports when a wait has lasted too long: after a time, after twice that, four times that ...

    Created again in mid wait, as by a restarted triggerer, it reports at once.
    """

    def __init__(self, planned: Mapping[str, Any], config_path: str | None = None) -> None:
        try:
            after = _settings(planned, config_path).failover_alert_after
        except SrmError as error:
            logger.warning("No notifications about long waits: %s", error)
            after = NEVER
        self._next_s = after.total_seconds()

    def is_over(self, waited_s: float) -> bool:
        """Return whether a time limit is over; true once for each limit."""
        if waited_s < self._next_s:
            return False
        self.remaining_s(waited_s)
        return True

    def remaining_s(self, waited_s: float) -> float:
        """Seconds until it is over, the next time where it has been."""
        while self._next_s <= waited_s:
            self._next_s *= 2
        return self._next_s - waited_s


def _settings(planned: Mapping[str, Any], config_path: str | None) -> FlowConfig:
    from srm_airflow.settings import config_path as found  # noqa: PLC0415 - reads the environment

    flow = Flow.parse(f"{planned['source']}->{planned['target']}")
    return load_config(config_path or found()).flow(flow)


def _name(known: Mapping[str, str]) -> str:
    move = f", move {known['move_id']}" if known["move_id"] else ""
    return f"{known['operation']} {known['source']}->{known['target']}{move}"


def rehearsal(kind: str, settings: FlowConfig, cron: str) -> dict[str, Any]:
    """Return how such a DAG is declared; a failure is sent to the flow's notifier.

    ``kind``: of rehearsal, in the DAG's id. ``cron``: when to run (UTC), empty for by hand alone.
    """
    flow = settings.flow
    move = {"operation": kind.replace("_", " "), "source": flow.source, "target": flow.target}
    return {
        "dag_id": dag_id(f"{kind}_{flow_id(settings)}"),
        "schedule": settled_cron(cron) if cron else None,
        "max_active_runs": 1,
        "catchup": False,
        "default_args": {
            "retries": 1,
            "retry_delay": timedelta(seconds=30),
            "on_failure_callback": partial(alert_failure, planned=move),
        },
    }
