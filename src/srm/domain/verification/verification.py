"""Results of a verification: counts, hashes and the first difference of each partition.

The latest result of each partition is a JSON record of ``__srm-verification.<SOURCE>``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, Literal

from srm.domain.names.topics import Flow
from srm.domain.text.json_records import JsonRecord, decoding
from srm.domain.verification.proven import NO_PAIR, Proven
from srm.domain.verification.verification_plan import RangePlan
from srm.errors import IntegrityError, SrmError, UnavailableError

Outcome = Literal["equal", "different", "unverified", "failed"]
DifferenceKind = Literal[
    "missing", "extra", "foreign", "order", "key", "value", "headers", "timestamp"
]

_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference at two places paired by the offset map; None: outside the map."""

    topic: str
    partition: int
    source_offset: int | None
    target_offset: int | None
    kinds: tuple[DifferenceKind, ...]

    def __str__(self) -> str:
        places = ((self.source_offset, "source"), (self.target_offset, "target"))
        where = ", ".join(
            f"{side} offset {offset}" for offset, side in places if offset is not None
        )
        return f"{self.topic}-{self.partition} {where}: {', '.join(self.kinds)}"


@dataclass(frozen=True, slots=True)
class SideResult:
    """One side of a range: the number of its records, and their hash in order.

    ``epoch`` is the leader epoch of the last read record, -1 if unknown. ``reached`` is an offset
    up to which the log held that epoch then.
    """

    records: int
    digest: str
    epoch: int = field(default=-1, compare=False)
    reached: int = field(default=-1, compare=False)


@dataclass(frozen=True, slots=True)
class RangeResult:
    """Result of comparing one range; for the fields see :class:`PartitionVerification`.

    ``by_bytes``: its batches were proven equal without reading single records.
    """

    source: SideResult
    target: SideResult
    foreign: int
    one_sided: int
    difference: Difference | None
    by_bytes: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class PartitionVerification(JsonRecord):
    """Verification result for one partition, about the records in both offset ranges.

    ``earlier_records`` were proven equal before, the last at ``earlier_ms``, and not read again.
    ``source_hash`` and ``target_hash`` are of all others. They are equal exactly if these are, in
    order. They depend on the ranges, so they cannot be compared with an earlier result.
    ``foreign`` counts target records that the copy did not write.
    ``one_sided`` counts records of a compacted topic that only one side still has. They are not
    hashed and not a difference.
    ``difference`` is the first one.
    ``outcome`` is ``unverified`` without a copy, ``failed`` if logs or map are unusable.
    ``reason`` says why nothing, or only a part, was compared.
    ``proven`` are all stretches known to be equal, of the topics with these ids.
    ``by_records`` counts source records that ordinary consumers had to read one by one.
    """

    topic: str
    partition: int
    remote_topic: str
    outcome: Outcome
    time_ms: int
    source_start: int = 0
    source_end: int = 0
    target_start: int = 0
    target_end: int = 0
    source_records: int = 0
    target_records: int = 0
    source_hash: str = ""
    target_hash: str = ""
    foreign: int = 0
    one_sided: int = 0
    difference: Difference | None = None
    reason: str = ""
    earlier_records: int = 0
    earlier_ms: int = 0
    source_id: str = ""
    target_id: str = ""
    proven: tuple[Proven, ...] = ()
    by_records: int = 0

    @property
    def proof(self) -> str:
        """Return the source offsets proven equal, with the part proven earlier."""
        if not self.proven:
            return ""
        stretches = [(s.source_start, s.source_end) for s in self.proven]
        if len(stretches) == 1 and stretches[0][0] <= self.source_start:
            told = f"proven to source offset {stretches[0][1]:,}"
        else:
            ranges = ", ".join(f"{a:,} to {b - 1:,}" for a, b in stretches)
            told = f"source offsets {ranges} are proven"
        if not self.earlier_records:
            return told
        at = datetime.fromtimestamp(self.earlier_ms / 1000, UTC)
        return f"{told}, {self.earlier_records:,} records of them earlier ({at:%Y-%m-%d %H:%M} UTC)"

    def key(self) -> bytes:
        """Encode the record key."""
        return f"{self.topic}-{self.partition}".encode()

    @classmethod
    def decode(cls, value: bytes) -> PartitionVerification:
        """Decode a record value."""
        with decoding("verification record", value):
            names = {entry.name for entry in fields(cls)}
            raw: dict[str, Any] = {k: v for k, v in json.loads(value).items() if k in names}
            entry = raw["difference"]
            if entry is not None:
                raw["difference"] = Difference(**entry | {"kinds": tuple(entry["kinds"])})
            raw["proven"] = tuple(Proven(**stretch) for stretch in raw.get("proven", ()))
            return cls(**raw)


@dataclass(frozen=True, slots=True)
class VerificationSummary:
    """The result of one verification of a flow, by topic and partition."""

    flow: Flow
    partitions: tuple[PartitionVerification, ...]

    @property
    def different(self) -> tuple[PartitionVerification, ...]:
        """Partitions whose copies differ."""
        return tuple(p for p in self.partitions if p.outcome == "different")

    @property
    def without_result(self) -> tuple[PartitionVerification, ...]:
        """Partitions without a comparison, each with its reason."""
        return tuple(p for p in self.partitions if p.outcome in ("unverified", "failed"))


def verdict(summary: VerificationSummary) -> SrmError | None:
    """Return the error of a verification: copies differ, or could not be read.

    A partition without a copy is not an error: its copy has no difference.
    """
    flow, different = summary.flow, summary.different
    if different:
        return IntegrityError(
            f"{flow}: {len(different)} of {len(summary.partitions)} partitions differ, first "
            f"{different[0].difference}"
        )
    failed = [p for p in summary.partitions if p.outcome == "failed"]
    if failed:
        return UnavailableError(
            f"{flow}: {len(failed)} of {len(summary.partitions)} partitions could not be "
            f"compared, first {failed[0].topic}-{failed[0].partition}: {failed[0].reason}"
        )
    return None


def merge(whole: RangePlan, results: Sequence[RangeResult], time_ms: int) -> PartitionVerification:
    """Merge the results of a partition's ranges, given in order."""
    difference = next((r.difference for r in results if r.difference is not None), None)
    return PartitionVerification(
        whole.topic,
        whole.partition,
        whole.remote_topic,
        "equal" if difference is None else "different",
        time_ms,
        whole.source_start,
        whole.source_end,
        whole.target_start,
        whole.target_end,
        sum(r.source.records for r in results),
        sum(r.target.records for r in results),
        _digest_of(r.source.digest for r in results),
        _digest_of(r.target.digest for r in results),
        sum(r.foreign for r in results),
        sum(r.one_sided for r in results),
        difference,
        whole.left_out,
        by_records=sum(r.source.records for r in results if not r.by_bytes),
    )


def found_equal(plan: RangePlan, result: RangeResult, time_ms: int) -> Proven | None:
    """Return the stretch that a comparison has proven, None if it found a difference.

    Nothing is proven if a log ends before the range. In a compacted topic that is not a difference,
    but new records will follow there, which were not compared.
    """
    is_short = plan.source_log_end < plan.source_end or plan.target_log_end < plan.target_end
    if result.difference is not None or is_short:
        return None
    marks = [
        (side.epoch, side.reached) if side.epoch >= 0 else NO_PAIR
        for side in (result.source, result.target)
    ]
    return Proven.of(plan, marks[0], marks[1], time_ms)


def new_hash() -> hashlib.blake2b:
    """Return a new hash of the kind that all results use."""
    return hashlib.blake2b(digest_size=_DIGEST_BYTES)


def _digest_of(digests: Iterable[str]) -> str:
    chained = new_hash()
    for digest in digests:
        chained.update(bytes.fromhex(digest))
    return chained.hexdigest()
