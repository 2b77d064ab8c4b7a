"""Results and errors of engine calls as Airflow shows them, and reasons for the note of a run."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from pydantic import TypeAdapter

from srm.errors import SrmError
from srm_airflow.compat import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    DownstreamTasksSkipped,
)

logger = logging.getLogger(__name__)

REASON_KEY: Final = "reason"
REASON_STEPS: Final = ("release", "plan", "approve", "hold", "wait", "apply_and_go", "verify")
"""Tasks that leave reasons; that of the first one counts: who may still be held comes first."""


@contextmanager
def engine_errors() -> Iterator[None]:
    """Let Airflow retry what may succeed later and fail at once what cannot."""
    try:
        yield
    except SrmError as error:
        if error.retriable:
            raise
        raise AirflowFailException(f"{type(error).__name__}: {error}") from error


def as_json(value: Any) -> Any:
    """Turn a frozen dataclass of the engine into plain JSON for XCom, assets and state."""
    return TypeAdapter(type(value)).dump_python(value, mode="json")


@contextmanager
def reason_kept(context: Mapping[str, Any]) -> Iterator[None]:
    """Keep the message of an error that leaves the block as XCom ``reason`` of the task."""
    try:
        yield
    except (AirflowSkipException, DownstreamTasksSkipped):
        raise
    except (SrmError, AirflowException) as error:
        _keep_reason(context, reason_of(error))
        raise


def _keep_reason(context: Mapping[str, Any], reason: str) -> None:
    try:
        context["ti"].xcom_push(key=REASON_KEY, value=reason)
    except Exception as error:  # noqa: BLE001 - the error that is under way is the one to see
        logger.warning("The reason was not kept for the note of the run: %r", error)


def reason_of(error: BaseException) -> str:
    """Return the message to show: that of srm, where Airflow's error wraps one."""
    cause = error.__cause__
    return str(cause if isinstance(cause, SrmError) else error)


def reason_in(ti: Any) -> str:
    """Return why the run of a task instance did not continue; empty where no step left a reason.

    A step that was killed, or marked as failed, leaves none.
    """
    for step in REASON_STEPS:
        if found := ti.xcom_pull(task_ids=step, key=REASON_KEY):
            return str(found)
    return ""
