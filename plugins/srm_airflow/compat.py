"""Names of Airflow that have another place, or do not exist, in some version from 3.1 to 3.3.

DAGs and plugin import these names here. Everything else that they use has one place in all of them.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final, NoReturn

from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowNotFoundException,
    AirflowSkipException,
    DownstreamTasksSkipped,
    TaskDeferred,
    conf,
)
from airflow.sdk.timezone import utcnow

try:
    from airflow.sdk import AssetOrTimeSchedule, CronTriggerTimetable, DeltaTriggerTimetable
except ImportError:  # 3.1
    from airflow.timetables.assets import AssetOrTimeSchedule
    from airflow.timetables.trigger import CronTriggerTimetable, DeltaTriggerTimetable

try:
    from airflow.sdk.exceptions import TaskAwaitingInput
except ImportError:  # 3.1 and 3.2
    TaskAwaitingInput = None

__all__ = (
    "HAS_TASK_STATE",
    "AirflowException",
    "AirflowFailException",
    "AirflowNotFoundException",
    "AirflowSkipException",
    "AssetOrTimeSchedule",
    "CronTriggerTimetable",
    "DeltaTriggerTimetable",
    "DownstreamTasksSkipped",
    "TaskDeferred",
    "TaskParked",
    "conf",
    "park",
)

TaskParked: Final = TaskAwaitingInput or TaskDeferred
"""Raised by a task that waits for an answer of a person."""

HAS_TASK_STATE: Final = TaskAwaitingInput is not None
"""Whether tasks have a state store: the same version brought both."""


def park(
    operator: Any, ti_id: Any, method_name: str, kwargs: dict[str, Any], timeout: timedelta
) -> NoReturn:
    """Park a task that has requested an answer; without one its method is called when time is up.

    ``operator``: a human-in-the-loop operator, whose request is already written. ``method_name``:
    method of the operator that takes the answer.
    """
    if TaskAwaitingInput is not None:
        raise TaskAwaitingInput(method_name=method_name, kwargs=kwargs, timeout=timeout)
    from airflow.providers.standard.triggers.hitl import HITLTrigger  # noqa: PLC0415 - up to 3.2

    trigger = HITLTrigger(
        ti_id=ti_id,
        options=operator.options,
        params=operator.serialized_params,
        timeout_datetime=utcnow() + timeout,
    )
    raise TaskDeferred(trigger=trigger, method_name=method_name, kwargs=kwargs)
