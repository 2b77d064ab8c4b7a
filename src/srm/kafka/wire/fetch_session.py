"""A fetch session on one broker (KIP-227): only what has changed is sent in either direction."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from srm.errors import SrmError
from srm.kafka.wire.frames import SESSION_LOST, FetchResponse, fetch_request
from srm.replication.ports import Fetched, FetchFrom

_LAST_EPOCH: Final = 2**31 - 1

Ask = Callable[[bytes, int], Awaitable[FetchResponse]]
"""Sends an encoded fetch with its maximum wait in milliseconds; raises top-level errors."""


class WireFetchSession:
    """Implements :class:`srm.replication.ports.FetchSession`.

    A broker whose session cache is full answers with session id 0: then every poll is a full one,
    and the partitions take turns at being first, which within a session the broker sees to.
    """

    def __init__(self, ask: Ask, *, read_committed: bool) -> None:
        self._ask = ask
        self._read_committed = read_committed
        self._wanted: dict[tuple[bytes, int], FetchFrom] = {}
        self._changed: dict[tuple[bytes, int], FetchFrom] = {}
        self._forgotten: set[tuple[bytes, int]] = set()
        self._id = 0
        self._epoch = 0
        self._turn = 0

    def want(self, partition: FetchFrom) -> None:
        """See the port."""
        key = partition.topic_id, partition.partition
        self._wanted[key] = self._changed[key] = partition
        self._forgotten.discard(key)

    def forget(self, topic_id: bytes, partition: int) -> None:
        """See the port."""
        key = topic_id, partition
        if self._wanted.pop(key, None) is not None:
            self._changed.pop(key, None)
            self._forgotten.add(key)

    async def poll(self, *, max_wait_ms: int, max_bytes: int) -> Fetched:
        """See the port."""
        while True:
            body = self._request(max_wait_ms, max_bytes)
            try:
                response = await self._ask(body, max_wait_ms)
            except SrmError:
                self._begin_anew()
                raise
            if response.error in SESSION_LOST:
                self._begin_anew()
                continue
            if response.session_id != 0:
                self._id = response.session_id
                self._epoch = 1 if self._epoch == _LAST_EPOCH else self._epoch + 1
            else:
                self._begin_anew()
            return response.fetched

    def _request(self, max_wait_ms: int, max_bytes: int) -> bytes:
        if self._epoch == 0:
            everything = list(self._wanted.values())
            self._turn = (self._turn + 1) % max(1, len(everything))
            partitions = everything[self._turn :] + everything[: self._turn]
            forgotten: set[tuple[bytes, int]] = set()
        else:
            partitions, forgotten = list(self._changed.values()), self._forgotten
        self._changed, self._forgotten = {}, set()
        return fetch_request(
            partitions,
            max_wait_ms,
            max_bytes,
            read_committed=self._read_committed,
            session=(self._id, self._epoch),
            forgotten=forgotten,
        )

    def _begin_anew(self) -> None:
        self._id = self._epoch = 0
