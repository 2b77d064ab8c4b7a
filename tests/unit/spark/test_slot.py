"""A slot ends where it can do nothing right any more."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import pytest

from srm.errors import ConflictError, UnavailableError
from srm.spark import slot
from srm.spark.slot import _unless_replaced


@dataclass
class Wire:
    alias: str
    replaced_by: str = ""


def play(running: Any, *wires: Wire) -> None:
    with patch.object(slot, "_LOOK_S", 0.01):
        asyncio.run(_unless_replaced(running, wires))  # type: ignore[arg-type]


def test_a_slot_begins_again_when_one_of_its_clusters_is_another_one_and_lets_go_before() -> None:
    ended, wire = [], Wire("P")

    async def running() -> None:
        try:
            wire.replaced_by = "other"
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    with pytest.raises(ConflictError, match="P is another cluster now, other"):
        play(running(), Wire("B"), wire)

    assert ended == [True]


def test_a_slot_ends_as_it_does_while_its_clusters_are_the_same() -> None:
    async def fails() -> None:
        raise UnavailableError("the state cannot be read")

    with pytest.raises(UnavailableError):
        play(fails(), Wire("P"))
    play(asyncio.sleep(0), Wire("P"))
