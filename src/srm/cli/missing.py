"""Commands whose extra is not installed: the line that says which one."""

from __future__ import annotations

from typing import Final

from srm.errors import UsageError

DISTRIBUTION: Final = "kafka-srm"
"""Name on PyPI; the package is ``srm``."""

_LIBRARIES: Final = {
    "airflow": ("airflow",),
    "lab": ("platformdirs",),
    "parquet": ("pyarrow",),
    "service": (
        *("cryptography", "fastapi", "httpx", "jinja2", "jwt", "prometheus_client"),
        *("starlette", "uvicorn"),
    ),
    "spark": ("aiokafka", "cramjam", "crc32c", "pandas", "psutil", "py4j", "pyspark"),
}
_EXTRA_OF: Final = {library: extra for extra, all_ in _LIBRARIES.items() for library in all_}


def missing_extra(error: ModuleNotFoundError) -> UsageError | None:
    """Return the error that names the extra, None for a module of no extra."""
    library = (error.name or "").partition(".")[0]
    if library not in _EXTRA_OF:
        return None
    return UsageError(
        f"this needs {library}, which is not installed",
        f"pip install '{DISTRIBUTION}[{_EXTRA_OF[library]}]'",
    )
