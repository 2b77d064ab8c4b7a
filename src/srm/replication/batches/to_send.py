"""The one place that decides how each batch travels, so copy path and resume walk agree."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from srm.clock import now_ms, now_s
from srm.domain.flow_state.replication_records import PartitionNotes
from srm.domain.names.record_headers import Transform
from srm.errors import IntegrityError
from srm.replication import codes
from srm.replication.batches.batch import (
    NO_LIMIT,
    AbortedTransactions,
    BatchHeader,
    BatchToSend,
    Dropped,
    Path,
    batches,
    verify,
)
from srm.replication.batches.merging import Merging
from srm.replication.batches.records import decode, encode
from srm.replication.ports import DecodedRecord, FetchedPartition, Produced

_FORGET_S: Final = 600.0
"""The target's limit may have been raised: large batches are tried again after that time."""


class TargetLimits:
    """Limits of one partition learned from the target's refusals: batch size, refused records.

    The copy searches for what is refused; each refusal costs a new claim and a walk, about 10 ms.
    After a merged batch that is too large, batches are merged up to half its size. After another
    one, batches above the middle between the largest accepted and the smallest refused one are sent
    in pieces. Refused records are named by the broker, or else the batch is cut in two until one is
    left. Adjacent records with names stay in one batch, and are skipped together.

    Ranges that operators decided not to copy are left out, each in the log up to a leader epoch.
    """

    def __init__(self) -> None:
        self._refused = NO_LIMIT
        self._accepted = 0
        self._learned_at = 0.0
        self._merge_limit = NO_LIMIT
        self._cuts: set[int] = set()
        self._decided: list[tuple[int, int, int]] = []
        self.knows_something = False

    @property
    def limit(self) -> int:
        """Size in bytes above which a batch is sent in pieces."""
        if self._refused == NO_LIMIT:
            return NO_LIMIT
        return (self._accepted + self._refused) // 2

    @property
    def merge_limit(self) -> int:
        """Size in bytes up to which batches may be merged."""
        if self._merge_limit != NO_LIMIT and now_s() - self._learned_at > _FORGET_S:
            self._merge_limit = NO_LIMIT
        return self._merge_limit

    def passes(self, batch: BatchHeader) -> bool:
        if self._refused != NO_LIMIT:
            if now_s() - self._learned_at > _FORGET_S:
                self._refused, self._accepted = NO_LIMIT, 0
            elif len(batch.view) > self.limit and batch.record_count > 1:
                return False
        return not (
            any(batch.base_offset <= cut <= batch.last_offset for cut in self._cuts)
            or any(
                first <= batch.last_offset and batch.base_offset < end
                for first, end in self.left_out
            )
        )

    def parts(self, records: Sequence[DecodedRecord]) -> Iterator[Sequence[DecodedRecord]]:
        """Cut records, in offset order, into what goes into batches of its own."""
        for first, end in self.left_out:
            records = [record for record in records if not first <= record.offset < end]
        offsets = [record.offset for record in records] if self._cuts else []
        places = sorted({bisect_left(offsets, cut) for cut in self._cuts} - {0, len(records)})
        for begin, end in zip([0, *places], [*places, len(records)], strict=True):
            if end > begin:
                yield records[begin:end]

    def learn(
        self, produced: Produced, size: int, offsets: Sequence[int], *, is_merged: bool = False
    ) -> bool:
        """Learn from a refused batch; False if each of its records is to blame."""
        named = {index for index in produced.records if index < len(offsets)}
        if len(offsets) <= 1 or len(named) == len(offsets):
            return False
        if is_merged and produced.error in codes.TOO_LARGE and size // 2 < self.merge_limit:
            self._merge_limit = size // 2
            self._learned_at = now_s()
            return True
        self.knows_something = True
        if produced.error in codes.TOO_LARGE:
            self._refused = min(self._refused, size)
            if self._accepted >= self._refused:
                self._accepted = 0  # it depends on what the target's own compression makes of it
            self._learned_at = now_s()
            return True
        if named:
            self._cuts.update(offsets[index] for index in named if index - 1 not in named)
            self._cuts.update(offsets[index] + 1 for index in named if index + 1 not in named)
        else:
            self._cuts.add(offsets[len(offsets) // 2])
        return True

    def decide(self, decided: Iterable[PartitionNotes]) -> None:
        """Leave out what these decisions are about, and nothing of what was decided before."""
        self._decided = [(*note.left_out, note.epoch) for note in decided if note.left_out]
        self.knows_something = self.knows_something or bool(self._decided)

    def is_overtaken(self, epoch: int) -> bool:
        """Return whether a batch of a leader epoch can replace records that are left out."""
        return any(0 <= decided < epoch for _, _, decided in self._decided)

    def epoch_of_others(self, records: memoryview) -> int | None:
        """Return the leader epoch of a batch in such a place; None: none, or a damaged one."""
        with suppress(IntegrityError):
            for batch in batches(records) if self._decided else ():
                ends = [end for _, end, epoch in self._decided if 0 <= epoch < batch.leader_epoch]
                if batch.base_offset < max(ends, default=0):
                    return batch.leader_epoch
        return None

    def cut(self, source_offset: int) -> None:
        """Forget what is left out from an offset on: other records will have these offsets."""
        self._decided = [
            (first, min(end, source_offset), epoch)
            for first, end, epoch in self._decided
            if first < source_offset
        ]

    def leaves_out(self, first: int, end: int) -> bool:
        for begins, ends in self.left_out:
            if begins <= first:
                first = max(first, ends)
        return first >= end

    @property
    def left_out(self) -> list[tuple[int, int]]:
        """Ranges of source offsets that are not copied, and not passed yet."""
        return sorted((first, end) for first, end, _ in self._decided)

    def on_accept(self, size: int, source_next: int) -> None:
        """Learn from an acknowledged batch, and forget what comes before it."""
        if self._refused > size > self._accepted:
            self._accepted = size
        self._cuts = {cut for cut in self._cuts if cut > source_next}
        self._decided = [one for one in self._decided if one[1] > source_next]
        self.knows_something = bool(self._cuts or self.left_out or self._refused != NO_LIMIT)


_MERGED_BYTES: Final = 1 << 18


def batches_to_send(
    fetched: FetchedPartition,
    wanted_offset: int,
    owner: object,
    *,
    read_committed: bool,
    limits: TargetLimits | None = None,
    transform: Transform | None = None,
    merging: Merging | None = None,
) -> Iterator[BatchToSend | Dropped]:
    """Yield the batches to send, and the offsets up to which nothing is to be sent."""
    aborted = AbortedTransactions(fetched.aborted if read_committed else ())
    limits = limits or TargetLimits()
    plainly = _Plainly(wanted_offset, owner, limits, transform, aborted)
    if merging is None or plainly.opens_all or aborted:
        yield from plainly.travel(fetched.records)
        return
    for piece in merging.pieces(fetched.records, wanted_offset, owner, limits.merge_limit):
        if isinstance(piece, memoryview):
            yield from plainly.travel(piece)
        else:
            yield piece


@dataclass(frozen=True, slots=True)
class _Plainly:
    """The plain path: every batch is looked at by itself, and tiny ones are merged."""

    wanted_offset: int
    owner: object
    limits: TargetLimits
    transform: Transform | None
    aborted: AbortedTransactions

    @property
    def opens_all(self) -> bool:
        return self.limits.knows_something or self.transform is not None

    def travel(self, records: memoryview) -> Iterator[BatchToSend | Dropped]:
        opens_all, made = self.opens_all, self._make
        knows, limits = self.limits.knows_something, self.limits
        group = _Group(self.wanted_offset)
        try:
            for batch in batches(records):
                is_dropped = self.aborted.drops(batch)
                path = Path.DROP if is_dropped else batch.path(self.wanted_offset)
                if path is Path.DROP:
                    verify(batch)
                    group.pass_over(batch)
                    if not group.batches:
                        yield group.end
                    continue
                if opens_all or path is not Path.PASS or batch.is_tiny:
                    verify(batch)
                if group.batches and not group.has_room_for(batch):
                    full, group = group, _Group(self.wanted_offset)
                    yield from made(full)
                passes = path is not Path.REBUILD and (not knows or limits.passes(batch))
                group.add(batch, passes=passes)
        except IntegrityError:
            if group.batches:
                yield from made(group)
            raise
        if group.batches:
            yield from made(group)

    def _make(self, group: _Group) -> Iterator[BatchToSend | Dropped]:
        first, end, passes, transform = group.batches[0], group.end, group.passes, self.transform
        headers_of = None if transform is None else transform.headers_of(now_ms())
        if passes and (transform is None or not transform.drops_some) and headers_of is None:
            yield _pass_through(first, end, self.owner)
            return
        decoded = decode(first, self.wanted_offset)
        for batch in group.batches[1:]:
            decoded += decode(batch, self.wanted_offset)
        records: Sequence[DecodedRecord] = decoded
        if transform is not None:
            records = transform.select(decoded)
        if passes and headers_of is None and len(records) == first.record_count:
            yield _pass_through(first, end, self.owner)
            return
        limit = self.limits.limit
        made = [
            built
            for part in self.limits.parts(records)
            for built in encode(part, first.codec, end, limit=limit, headers_of=headers_of)
        ]
        if not made:
            yield end
        # Each ends where the next begins: what is dropped between them has been passed by then.
        for outgoing, following in pairwise(made):
            outgoing.source_next = following.stretches[0][0]
        yield from made


class _Group:
    """Batches that leave as one, and how far the source is passed with them."""

    def __init__(self, wanted_offset: int) -> None:
        self.batches: list[BatchHeader] = []
        self.passes = False
        self.end = Dropped(wanted_offset, -1)
        self._size = 0

    def has_room_for(self, batch: BatchHeader) -> bool:
        first = self.batches[0]
        return (
            batch.is_tiny
            and first.is_tiny
            and batch.codec == first.codec
            and self._size + len(batch.view) < _MERGED_BYTES
        )

    def add(self, batch: BatchHeader, *, passes: bool) -> None:
        self.passes = passes and not self.batches
        self.batches.append(batch)
        self._size += len(batch.view)
        self.pass_over(batch)

    def pass_over(self, batch: BatchHeader) -> None:
        self.end = Dropped(batch.last_offset + 1, batch.leader_epoch)


def _pass_through(batch: BatchHeader, end: Dropped, owner: object) -> BatchToSend:
    count = batch.record_count
    stretches = [(batch.base_offset, count)]
    return BatchToSend(batch.view, count, stretches, *end, batch.max_timestamp, owner)
