"""The same as test_chains.py, with five hundred chains of three clusters and as many of four."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.simulation.chains import Chain


@pytest.mark.parametrize("names", ["ABC", "ABCD"])
@pytest.mark.parametrize("first", range(0, 500, 50))
def test_clients_work_where_hundreds_of_chains_have_led_them(
    tmp_path: Path, names: str, first: int
) -> None:
    found = dict[int, str]()
    for seed in range(first, first + 50):
        (home := tmp_path / str(seed)).mkdir()
        if wrong := Chain(seed, names, home).play():
            found[seed] = wrong

    assert found == {}
