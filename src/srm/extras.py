"""Libraries of the extras, which the base install does not have: imported at their first use."""

from __future__ import annotations

from importlib import import_module
from traceback import walk_tb
from types import ModuleType
from typing import Any, Final, Literal

from srm.errors import UsageError

DISTRIBUTION: Final = "kafka-srm"
"""Name on PyPI; the package is ``srm``."""

Extra = Literal["airflow", "spark", "service", "parquet", "lab"]


class MissingExtraError(UsageError):
    """A library of an extra is not installed."""


_LIBRARIES: Final[dict[Extra, tuple[str, ...]]] = {
    "airflow": ("airflow",),
    "lab": ("platformdirs", "tenacity"),
    "parquet": ("pyarrow",),
    "service": (
        *("cryptography", "fastapi", "httpx", "jinja2", "jwt", "prometheus_client"),
        *("starlette", "uvicorn"),
    ),
    "spark": ("aiokafka", "crc32c", "pandas", "psutil", "py4j", "pyspark"),
}
_WHOLE: Final[dict[str, Extra]] = {"srm_lab.": "lab", "srm.spark.": "spark"}
"""Code that uses libraries of several extras, and needs the whole of one."""
_EXTRA_OF: Final = {library: extra for extra, every in _LIBRARIES.items() for library in every}


def missing_extra(error: ModuleNotFoundError) -> MissingExtraError | None:
    """Return the error that names the extra of a missing module, None for a module of no extra."""
    library = (error.name or "").partition(".")[0]
    if library not in _EXTRA_OF:
        return None
    names = [frame.f_globals.get("__name__", "") for frame, _ in walk_tb(error.__traceback__)]
    whole = (extra for room, extra in _WHOLE.items() if any(one.startswith(room) for one in names))
    extra = next(whole, _EXTRA_OF[library])
    return MissingExtraError(
        f"this needs the extra {extra}: {library} is not installed",
        f"pip install '{DISTRIBUTION}[{extra}]'",
    )


def require(name: str) -> ModuleType:
    """Import a module of an extra; MissingExtraError where it is not installed."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise missing_extra(error) or error from None


class library:  # noqa: N801 - it is used as a module
    """A module of an extra that is imported by the first use of one of its names."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):  # what copies and inspects objects looks for those
            raise AttributeError(attribute)
        value = getattr(require(self._name), attribute)
        setattr(self, attribute, value)
        return value
