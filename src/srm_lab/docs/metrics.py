"""Writes the tables of metrics in docs/monitoring.md: ``python -m srm_lab.docs.metrics``."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from srm.service.prometheus.metric_table import METRICS
from srm_lab.docs.page import write

DEFAULT_PATH: Final = Path("docs/monitoring.md")
_BEGIN: Final = "<!-- Metrics: written by `python -m srm_lab.docs.metrics` -->"
_END: Final = "<!-- End of the metrics -->"


def with_tables(page: str) -> str:
    tables = "\n".join(_tables())
    between = re.compile(f"{re.escape(_BEGIN)}.*{re.escape(_END)}", re.DOTALL)
    return between.sub(lambda _: f"{_BEGIN}\n\n{tables}\n{_END}", page)


def _tables() -> Iterator[str]:
    yield "| metric | labels | meaning |"
    yield "|---|---|---|"
    for metric in METRICS.values():
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        yield f"| `{metric.name}` | {labels} | {metric.meaning} |"
    yield ""


def main(arguments: list[str]) -> None:
    write(lambda page: with_tables(page.read_text("utf-8")), DEFAULT_PATH, __doc__, arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
