"""Clients work where moves have led them, after chains of planned and unplanned moves."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.simulation.chains import Chain


@pytest.mark.parametrize("names", ["ABC", "ABCD"])
@pytest.mark.parametrize("seed", [38, 40, 53, 94, 110, 141, 144, *range(12)])
def test_clients_work_where_a_chain_of_moves_has_led_them(
    tmp_path: Path, names: str, seed: int
) -> None:
    assert Chain(seed, names, tmp_path).play() == ""
