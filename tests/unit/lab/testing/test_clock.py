"""The clock of tests goes only where it is told to go."""

from __future__ import annotations

import pytest

from srm_lab.testing.flows import FakeClock


def test_it_stands_still_until_it_is_advanced():
    clock = FakeClock(1000)
    assert clock() == clock() == 1000

    clock.advance(250)

    assert clock() == 1250


def test_it_never_goes_back():
    with pytest.raises(ValueError, match="forward"):
        FakeClock().advance(-1)
