"""Whether the native library is to be expected here."""

from __future__ import annotations

import shutil

import pytest

from srm.replication.native.library import FILE

COMPILER = next(filter(shutil.which, ("cc", "gcc", "clang")), None)
CANNOT_BUILD = not FILE.exists() and COMPILER is None
needs_native = pytest.mark.skipif(
    CANNOT_BUILD, reason="there was nothing to build the native library with"
)
