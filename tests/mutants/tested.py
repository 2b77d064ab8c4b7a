"""Runs one test with a mutant in place: ``python -m tests.mutants.tested NAME TEST``."""

from __future__ import annotations

import sys

import pytest
from tests.mutants.mutants import MUTANTS

if __name__ == "__main__":
    _, name, test = sys.argv
    [mutant] = [m for m in MUTANTS if m.name == name]
    with mutant.in_place():
        sys.exit(pytest.main(["-q", "-x", "-p", "no:randomly", "-p", "no:cacheprovider", test]))
