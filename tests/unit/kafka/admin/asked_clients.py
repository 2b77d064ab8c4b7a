"""Clients whose requests go to brokers of a test, one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

from srm.config.model import ClusterClients
from srm.kafka.admin.clients import Clients


class AskedClients(Clients):
    """Clients of such brokers; ``asked_as``: the kind of client of the last request."""

    def __init__(self, brokers: object) -> None:
        super().__init__("P", ClusterClients.alike({}))
        self.brokers = brokers
        self.asked_as = "admin"

    def request(
        self,
        doing: str,  # noqa: ARG002
        request: Callable[[Any], Awaitable[Any]],
        needs: object = None,  # noqa: ARG002
        *,
        client: str = "admin",
    ) -> Any:
        self.asked_as = client
        return asyncio.run(cast("Any", request(self.brokers)))
