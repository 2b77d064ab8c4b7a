"""Programs of Debian for tests: without them these are skipped, in a landing they fail."""

from __future__ import annotations

import os
import shutil

import pytest


def program(name: str, package: str) -> str:
    """Return the path of a program; skip the test where there is none and none is demanded."""
    path = shutil.which(name)
    if path is None:
        missing = f"{name} is missing: apt-get install {package}"
        if os.environ.get("TEST_EVERYTHING"):
            pytest.fail(missing)
        pytest.skip(missing)
    return path
