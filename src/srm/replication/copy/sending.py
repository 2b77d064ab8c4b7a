"""Writing to the target: pipelined produce requests, one batch per partition in each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from srm.clock import now_s
from srm.errors import UnavailableError
from srm.replication import codes
from srm.replication.batches.batch import BatchToSend
from srm.replication.copy.claiming import SlotContext
from srm.replication.copy.fetching import SourceLoop
from srm.replication.partition import PartitionCopy
from srm.replication.ports import Clock, Leader, ProduceAnswer, Produced, ProduceRequest, Wire

if TYPE_CHECKING:
    from srm.replication.copy.lifecycle import Lifecycle

logger = logging.getLogger(__name__)

_MAX_IN_FLIGHT: Final = 64
"""Requests per broker: more than the five batches that it remembers, as nothing is sent again."""
_IN_FLIGHT_BYTES: Final = 8 << 20
_REQUEST_BYTES: Final = 8 << 20
_UNDER_QUOTA_MS: Final = 2000
"""Time's worth of bytes under way to a broker whose quota is used up, one batch at least.

What was sent too early waits in the connection, and every answer after it.
"""

_FAILED: Final = "%s: unexpected failure"

Sent = list[tuple[PartitionCopy, int, BatchToSend]]


@dataclass(eq=False)
class TargetLink:
    """Sends for the partitions that one target broker leads."""

    wire: Wire
    node: int
    now_ms: Clock
    on_progress: Callable[[PartitionCopy], None]
    on_claim_needed: Callable[[PartitionCopy], None]
    on_refused: Callable[[PartitionCopy, Produced], None]
    _ready: dict[PartitionCopy, None] = field(default_factory=dict)
    _in_flight: int = 0
    _in_flight_bytes: int = 0
    _pump_due: bool = False
    _paused_until: float = 0.0

    def __post_init__(self) -> None:
        self._most_bytes = _IN_FLIGHT_BYTES

    def data_waits(self, copy: PartitionCopy) -> None:
        """Send the queue, not at once: partitions of one response leave in one request."""
        self._ready[copy] = None
        self._pump_soon()

    def _pump_soon(self) -> None:
        if not self._pump_due:
            self._pump_due = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        self._pump_due = False
        requests: list[ProduceRequest] = []
        while self._has_room() and self._ready:
            sent, size = self._next_request()
            if not sent:
                break
            self._in_flight += 1
            self._in_flight_bytes += size
            batches = [(copy.target, batch.view) for copy, _, batch in sent]
            requests.append(ProduceRequest(batches, partial(self._on_answer, sent, size)))
        if requests:
            self.wire.produce(self.node, requests)

    def _has_room(self) -> bool:
        return (
            self._in_flight < _MAX_IN_FLIGHT
            and self._in_flight_bytes < self._most_bytes
            and now_s() >= self._paused_until
        )

    def _heed_quota(self, size: int, throttle_ms: int) -> None:
        """Send nothing while the broker's quota demands it (KIP-219), and less at once after that.

        Where the quota is used up, the pause is the time that the bytes of the answer take. Room
        doubles with each answer without a pause.
        """
        if not throttle_ms:
            self._most_bytes = min(_IN_FLIGHT_BYTES, 2 * self._most_bytes)
            return
        self._most_bytes = max(1, min(self._most_bytes, size * _UNDER_QUOTA_MS // throttle_ms))
        pause = throttle_ms / 1000
        self._paused_until = now_s() + pause
        asyncio.get_running_loop().call_later(pause + 0.001, self._pump)

    def _next_request(self) -> tuple[Sent, int]:
        sent: Sent = []
        size = 0
        again: list[PartitionCopy] = []
        most = min(_REQUEST_BYTES, self._most_bytes)
        while self._ready and size < most:
            copy = next(iter(self._ready))
            del self._ready[copy]
            try:
                if copy.needs_claim:
                    self.on_claim_needed(copy)
                elif copy.can_send:
                    outgoing = copy.send_next()
                    size += len(outgoing.view)
                    sent.append((copy, copy.attempt, outgoing))
                    if copy.can_send:
                        again.append(copy)
            except Exception as failure:  # what befalls one partition must not stop the others
                logger.exception(_FAILED, copy.target)
                self.on_refused(copy, Produced(codes.NO_ANSWER, -1, repr(failure)))
        self._ready.update(dict.fromkeys(again))
        return sent, size

    def _on_answer(self, sent: Sent, size: int, answer: ProduceAnswer | UnavailableError) -> None:
        self._in_flight -= 1
        self._in_flight_bytes -= size
        text = ""
        if isinstance(answer, UnavailableError):
            text, answer = str(answer), ProduceAnswer({})
        lost = Produced(codes.NO_ANSWER, -1, text)
        self._heed_quota(size, answer.throttle_time_ms)
        now_ms = self.now_ms()
        for copy, attempt, outgoing in sent:
            if copy.attempt != attempt:
                continue  # an answer to an abandoned claim: resume finds the position
            produced = answer.partitions.get(copy.target, lost)
            try:
                self._take_over(copy, outgoing, produced, now_ms)
            except Exception as failure:  # as above
                logger.exception(_FAILED, copy.target)
                self.on_refused(copy, Produced(codes.NO_ANSWER, -1, repr(failure)))
        if self._ready:
            self._pump_soon()

    def _take_over(
        self, copy: PartitionCopy, outgoing: BatchToSend, produced: Produced, now_ms: int
    ) -> None:
        if produced.error == codes.NONE:
            if copy.on_ack(outgoing, produced.base_offset, now_ms):
                self.on_progress(copy)
                return
            produced = Produced(
                codes.UNEXPECTED_OFFSET,
                produced.base_offset,
                f"acknowledged at offset {produced.base_offset}, not {copy.target_next}: "
                "another producer writes to the remote topic",
            )
        self.on_refused(copy, produced)


Spawn = Callable[[Coroutine[Any, Any, None]], None]


@dataclass(eq=False)
class Placement:
    """One fetch loop for each source broker, one link to each target broker, made when needed."""

    context: SlotContext
    life: Lifecycle
    spawn: Spawn
    _loops: dict[int, SourceLoop] = field(default_factory=dict)
    _links: dict[int, TargetLink] = field(default_factory=dict)
    _placed: dict[PartitionCopy, tuple[SourceLoop, TargetLink]] = field(default_factory=dict)

    def put(self, copy: PartitionCopy, source: Leader, target_node: int) -> None:
        self.remove(copy)
        copy.note_leader(source)
        loop, link = self._loop(source.node), self._link(target_node)
        self._placed[copy] = loop, link
        loop.add(copy, target_node)
        if copy.can_send:
            link.data_waits(copy)

    def remove(self, copy: PartitionCopy) -> None:
        placed = self._placed.pop(copy, None)
        if placed is not None:
            placed[0].remove(copy)

    def sends_to(self, copy: PartitionCopy, node: int) -> bool:
        """Return whether a partition, if it is placed, sends to this target broker."""
        return copy not in self._placed or self._placed[copy][1].node == node

    def data_waits(self, copy: PartitionCopy) -> None:
        """Send what the partition has queued, if it is placed."""
        if copy in self._placed:
            self._placed[copy][1].data_waits(copy)

    def fetch_on(self, copy: PartitionCopy) -> None:
        if copy.wants_data and copy in self._placed:
            self._placed[copy][0].look_at(copy)

    def heard_s(self, copies: Iterable[PartitionCopy]) -> float | None:
        """Return as of when all source brokers have answered, monotonic; None if one is missing."""
        placed = [self._placed.get(copy) for copy in copies]
        if not placed or None in placed:
            return None
        return min(found[0].known_s for found in placed if found is not None)

    def _loop(self, node: int) -> SourceLoop:
        if node not in self._loops:
            source, committed = self.context.source, self.context.read_committed
            loop = SourceLoop(
                source.fetch_session(node, read_committed=committed),
                f"node {node} of {source.alias}",
                self.life.on_data,
                self.life.on_fetch_trouble,
                self.context.quota,
                read_committed=committed,
                linger_s=self.context.config.linger_ms / 1000,
            )
            self._loops[node] = loop
            self.spawn(loop.run())
        return self._loops[node]

    def _link(self, node: int) -> TargetLink:
        if node not in self._links:
            self._links[node] = TargetLink(
                self.context.target,
                node,
                self.context.now_ms,
                self.life.on_progress,
                self.life.claim,
                self.life.on_refused,
            )
        return self._links[node]
