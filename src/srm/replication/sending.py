"""Writing to the target: pipelined produce requests, one batch per partition in each."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable
from functools import partial
from typing import Final

from srm.domain.topics import TopicPartition
from srm.errors import UnavailableError
from srm.replication import codes
from srm.replication.partition import PartitionCopy
from srm.replication.ports import Clock, Produced, Wire
from srm.replication.units import Unit

_MAX_IN_FLIGHT: Final = 5
"""Requests per broker; more would outrun the five batches a broker remembers per producer."""
_REQUEST_BYTES: Final = 8 << 20

Sent = list[tuple[PartitionCopy, int, Unit]]
OnRefused = Callable[[PartitionCopy, Produced], None]


class TargetLink:
    """Sends for the partitions that one target broker leads."""

    def __init__(
        self,
        wire: Wire,
        node: int,
        now_ms: Clock,
        on_progress: Callable[[PartitionCopy], None],
        on_claim_needed: Callable[[PartitionCopy], None],
        on_refused: OnRefused,
    ) -> None:
        self._wire = wire
        self._node = node
        self._now_ms = now_ms
        self._on_progress = on_progress
        self._on_claim_needed = on_claim_needed
        self._on_refused = on_refused
        self._ready: dict[PartitionCopy, None] = {}
        self._in_flight = 0

    def data_waits(self, copy: PartitionCopy) -> None:
        """Send what the partition has queued, as soon as the pipeline has room."""
        self._ready[copy] = None
        self.pump()

    def pump(self) -> None:
        """Fill the pipeline."""
        while self._in_flight < _MAX_IN_FLIGHT and self._ready:
            sent = self._next_request()
            if not sent:
                return
            batches = [(copy.target, unit.view) for copy, _, unit in sent]
            self._in_flight += 1
            answer = self._wire.produce(self._node, batches)
            answer.add_done_callback(partial(self._answered, sent))

    def _next_request(self) -> Sent:
        sent: Sent = []
        size = 0
        again: list[PartitionCopy] = []
        while self._ready and size < _REQUEST_BYTES:
            copy = next(iter(self._ready))
            del self._ready[copy]
            if copy.needs_claim:
                self._on_claim_needed(copy)
            elif copy.can_send:
                unit = copy.send_next()
                size += len(unit.view)
                sent.append((copy, copy.attempt, unit))
                if copy.can_send:
                    again.append(copy)
        self._ready.update(dict.fromkeys(again))
        return sent

    def _answered(self, sent: Sent, answer: Future[dict[TopicPartition, Produced]]) -> None:
        self._in_flight -= 1
        error = answer.exception()
        if error is not None and not isinstance(error, UnavailableError):
            raise error
        answers = {} if error is not None else answer.result()
        now_ms = self._now_ms()
        lost = Produced(codes.NO_ANSWER, -1, str(error))
        for copy, attempt, unit in sent:
            if copy.attempt != attempt:
                continue  # an answer to a claim that was given up: resume has the truth
            produced = answers.get(copy.target, lost)
            if produced.error == codes.NONE:
                if copy.acknowledged(unit, produced.base_offset, now_ms):
                    self._on_progress(copy)
                    continue
                produced = Produced(
                    codes.UNEXPECTED_OFFSET,
                    produced.base_offset,
                    f"acknowledged at offset {produced.base_offset}, not {copy.target_next}: "
                    "somebody else writes to the remote topic",
                )
            self._on_refused(copy, produced)
        self.pump()
