"""A cluster that is given up: nothing is asked of it, whatever it might still answer."""

from __future__ import annotations

import logging
from typing import Any, NoReturn, cast

from srm.engine.ports import Cluster
from srm.errors import GivenUpError, SrmError


def away_cluster(alias: str, why: str = "") -> Cluster:
    """Return a cluster of which every call raises GivenUpError, at once.

    The source of an unplanned move: the move decides the same, and takes as long, whether that
    cluster is dead, swallows what is sent to it, or lives and is condemned.

    Args:
        alias: its alias.
        why: what the error says; by default that the move has given it up.
    """
    return cast("Cluster", _Away(alias, why))


def loudness(error: SrmError) -> int:
    """Return the level to log at that a cluster was done without: it is no news of one given up."""
    return logging.DEBUG if isinstance(error, GivenUpError) else logging.WARNING


class _Away:
    """Has every call of the port, and of the tables that it gives access to."""

    def __init__(self, alias: str, why: str) -> None:
        self.alias = alias
        self._why = why or f"cluster {alias} is given up by this move: not asked"

    def compacted_topic(self, *_which: object) -> _Away:
        return self

    def __getattr__(self, call: str) -> Any:
        def raise_away(*_arguments: object, **_named: object) -> NoReturn:
            raise GivenUpError(self._why)

        if call.startswith("__"):
            raise AttributeError(call)
        return raise_away
