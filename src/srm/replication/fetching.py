"""Reading from the source: one long poll per broker, over all partitions it leads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from srm.errors import IntegrityError, UnavailableError
from srm.replication import codes
from srm.replication.partition import PartitionCopy
from srm.replication.ports import Fetched, FetchFrom, Wire

logger = logging.getLogger(__name__)

_PARTITION_BYTES: Final = 1 << 20
_RESPONSE_BYTES: Final = 8 << 20
_WAITING_BYTES: Final = 64 << 20
"""Bytes waiting for the target, over all partitions of a source broker, before fetches pause."""
_IDLE_WAIT_MS: Final = 100
_THROTTLED_WAIT_MS: Final = 5
_RETRY_S: Final = 0.2

OnData = Callable[[PartitionCopy], None]
OnTrouble = Callable[[PartitionCopy, int, str], None]


class SourceLoop:
    """Fetches for the partitions that one source broker leads."""

    def __init__(
        self,
        wire: Wire,
        node: int,
        on_data: OnData,
        on_trouble: OnTrouble,
        *,
        read_committed: bool,
    ) -> None:
        self._wire = wire
        self._node = node
        self._on_data = on_data
        self._on_trouble = on_trouble
        self._read_committed = read_committed
        self._copies: dict[tuple[bytes, int], PartitionCopy] = {}
        self._wake = asyncio.Event()
        self._turn = 0

    def add(self, copy: PartitionCopy) -> None:
        """Fetch for one more partition."""
        self._copies[copy.source_id, copy.source.partition] = copy
        self._wake.set()

    def remove(self, copy: PartitionCopy) -> None:
        """Fetch no more for a partition."""
        self._copies.pop((copy.source_id, copy.source.partition), None)

    def wake(self) -> None:
        """Look again at what wants data."""
        self._wake.set()

    async def run(self) -> None:
        """Fetch until cancelled."""
        while True:
            self._wake.clear()
            wanted = self._wanted()
            if not wanted:
                await self._wake.wait()
                continue
            asked = {(c.source_id, c.source.partition): c.fetch_offset for c in wanted}
            try:
                fetched = await self._fetch(wanted)
            except UnavailableError as error:
                logger.warning("source node %s: %s", self._node, error)
                for copy in wanted:
                    self._on_trouble(copy, codes.NO_ANSWER, str(error))
                await asyncio.sleep(_RETRY_S)  # back-off between connection attempts
                continue
            self._dispatch(fetched, asked)

    def _wanted(self) -> list[PartitionCopy]:
        copies = self._copies.values()
        if sum(copy.waiting_bytes for copy in copies) >= _WAITING_BYTES:
            return []  # woken as soon as the target has taken something
        return [copy for copy in copies if copy.wants_data]

    async def _fetch(self, wanted: list[PartitionCopy]) -> Fetched:
        # The broker fills a response in the order of the request: take turns at being first.
        self._turn = (self._turn + 1) % len(wanted)
        ordered = wanted[self._turn :] + wanted[: self._turn]
        throttled = any(copy.is_throttled for copy in self._copies.values())
        return await self._wire.fetch(
            self._node,
            [
                FetchFrom(c.source_id, c.source.partition, c.fetch_offset, _PARTITION_BYTES)
                for c in ordered
            ],
            max_wait_ms=_THROTTLED_WAIT_MS if throttled else _IDLE_WAIT_MS,
            max_bytes=_RESPONSE_BYTES,
            read_committed=self._read_committed,
        )

    def _dispatch(self, fetched: Fetched, asked: dict[tuple[bytes, int], int]) -> None:
        for part in fetched.partitions:
            key = (part.topic_id, part.partition)
            copy = self._copies.get(key)
            if copy is None:
                continue
            if part.error != codes.NONE:
                if asked[key] == copy.fetch_offset:
                    self._on_trouble(copy, part.error, "")
                continue
            try:
                copy.accept(part, fetched.owner, asked[key], read_committed=self._read_committed)
            except IntegrityError as error:
                self._on_trouble(copy, codes.UNREADABLE, str(error))
                continue
            if len(part.records):
                self._on_data(copy)
