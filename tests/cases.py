"""Cases of a parametrised test: a few in each run, all of them in ``make test-all``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final, TypeVar

Case = TypeVar("Case")

ALL_CASES: Final = "SRM_ALL_CASES"
"""Set this variable to run every case."""


def cases(few: Sequence[Case], more: Sequence[Case]) -> list[Case]:
    """Return the few cases that differ most, and the others too where all are wanted."""
    return [*few, *(more if os.environ.get(ALL_CASES) else ())]
