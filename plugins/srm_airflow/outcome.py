"""Results and errors of engine calls, as Airflow shows them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pydantic import TypeAdapter

from srm.errors import SrmError
from srm_airflow.compat import AirflowFailException


@contextmanager
def engine_errors() -> Iterator[None]:
    """Let Airflow retry what may succeed later and fail at once what cannot.

    Raises:
        SrmError: a retriable one, as it is.
        AirflowFailException: instead of an error that trying again would only repeat.
    """
    try:
        yield
    except SrmError as error:
        if error.retriable:
            raise
        raise AirflowFailException(f"{type(error).__name__}: {error}") from error


def as_json(value: Any) -> Any:
    """Turn a frozen dataclass of the engine into plain JSON for XCom, assets and state."""
    return TypeAdapter(type(value)).dump_python(value, mode="json")
