"""Cases of a parametrised test: a few in each run, all of them in ``make test-all``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final, TypeVar

import pytest

Case = TypeVar("Case")

ALL_CASES: Final = "SRM_ALL_CASES"
"""Set this variable to run every case."""


def cases(few: Sequence[Case], more: Sequence[Case]) -> list[Case]:
    """Return the few cases that differ most, and the others too where all are wanted."""
    return [*few, *(more if os.environ.get(ALL_CASES) else ())]


needs_all_cases = pytest.mark.skipif(
    ALL_CASES not in os.environ, reason="builds tools or environments: make test-all runs it"
)
