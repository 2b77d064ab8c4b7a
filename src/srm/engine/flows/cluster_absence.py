"""An absent cluster in the place of a real one."""

from __future__ import annotations

import logging
from typing import Any, NoReturn, cast

from srm.engine.cluster_ports import Cluster
from srm.errors import GivenUpError, SrmError


def away_cluster(alias: str, why: SrmError | None = None) -> Cluster:
    """Return a cluster of which every call raises ``why`` at once, by default GivenUpError.

    So an unplanned move takes the same time for a dead, hanging or running source.
    """
    return cast("Cluster", _Away(alias, why))


def loudness(error: SrmError) -> int:
    """Return the log level for a failed call: DEBUG for an abandoned cluster, else WARNING."""
    return logging.DEBUG if isinstance(error, GivenUpError) else logging.WARNING


class _Away:
    """Implements every call of the port, and of the tables that it returns."""

    def __init__(self, alias: str, why: SrmError | None) -> None:
        self.alias = alias
        given_up = f"this move has abandoned cluster {alias}: no request was sent"
        self._why = why or GivenUpError(given_up)

    def compacted_topic(self, *_which: object) -> _Away:
        return self

    def __getattr__(self, call: str) -> Any:
        def raise_away(*_arguments: object, **_named: object) -> NoReturn:
            raise type(self._why)(self._why.what, self._why.action)

        if call.startswith("__"):
            raise AttributeError(call)
        return raise_away
