"""Proof of translated offsets by the records at both places, and the record of its results; pure.

A translation maps a group's offset in the original to an offset in the copy. The next records that
a reader gets on either side prove it::

    original      ... 94  95  96 ...      next record: the one at 95
    copy          ... 95  96  97 ...      next record: the one at 96, and it is the same

One side may have no next record (end of the log, not copied yet), or a different one (compaction,
retention, records that are never copied). Then pairs from the map are compared: the copy of the
original's next record, the original of the copy's, and the last pair before the place. Without
records that were read a verdict is ``unproven``, with the reason.

Under one name on both clusters the next records may differ: each log holds records of both flows,
in another order. There the next pair of each flow proves that no record is skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from srm.domain.groups.translation import Direction, PartitionFacts
from srm.domain.names.record_headers import PROVENANCE_HEADER, SOURCE_OFFSETS_HEADER, Provenance
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.offset_map.offset_map import OffsetMap, Translated
from srm.domain.text.amount import ago
from srm.domain.text.documents import Document, encode
from srm.domain.verification.compared_record import ComparedRecord, Headers
from srm.domain.verification.comparison import differing_fields
from srm.errors import NotLoadedError

ProofState = Literal["proven", "unproven", "disproved"]
Place = tuple[TopicPartition, int]

_UNREAD: Final = ComparedRecord(-1, None, None, (), -1)
_OWN_HEADERS: Final = frozenset({PROVENANCE_HEADER, SOURCE_OFFSETS_HEADER})


@dataclass(frozen=True, slots=True)
class Verdict:
    """Verdict of the records on one translation; ``reason`` is evidence, or what is missing."""

    state: ProofState
    reason: str = ""


PROVEN: Final = Verdict("proven")


@dataclass(frozen=True)
class TranslationClaim:
    """Translation, both offsets "next to read"; ``skipped``: the copy is known to lack records."""

    facts: PartitionFacts
    upstream_offset: int
    downstream_offset: int
    skipped: bool = False

    @property
    def key(self) -> tuple[Direction, TopicPartition, int, int]:
        facts = self.facts
        return facts.direction, facts.upstream, self.upstream_offset, self.downstream_offset

    @property
    def original(self) -> Place:
        return self._place(self.facts.direction == "forward")

    @property
    def copy(self) -> Place:
        return self._place(self.facts.direction == "reverse")

    def _place(self, is_upstream: bool) -> Place:  # noqa: FBT001 -- of this class only
        if is_upstream:
            return self.facts.upstream, self.upstream_offset
        return self.facts.downstream, self.downstream_offset


@dataclass(frozen=True, slots=True)
class Pair:
    """An original offset and that of its copy, from the map."""

    original: int
    copy: int


class Pairs:
    """Pairs of a claim's map; None if there is no pair, or the loaded part does not have it."""

    def __init__(self, claim: TranslationClaim) -> None:
        self._map: OffsetMap = claim.facts.offset_map
        self._copy_offset = claim.copy[1]
        self.unknown = False

    def of_original(self, offset: int) -> Pair | None:
        try:
            there = self._map.forward(offset)
            if not isinstance(there, Translated):
                return None
            back = self._map.backward(there.offset + 1)
        except NotLoadedError:
            self.unknown = True
            return None
        is_pair = isinstance(back, Translated) and back.offset == offset + 1
        return Pair(offset, there.offset) if is_pair else None

    def of_copy(self, offset: int) -> Pair | None:
        found = self._last_before(offset + 1)
        return found if found is not None and found.copy == offset else None

    def last(self) -> Pair | None:
        """Return the last pair before the claim's place in the copy."""
        return self._last_before(self._copy_offset)

    def reaches(self, original_offset: int) -> bool:
        """Return True if the map is complete up to an original offset."""
        known = self._map.known_source_end
        return known is not None and original_offset < known

    def _last_before(self, copy_offset: int) -> Pair | None:
        try:
            back = self._map.backward(copy_offset)
        except NotLoadedError:
            self.unknown = True
            return None
        if not isinstance(back, Translated) or back.offset < 1:
            return None
        found = self.of_original(back.offset - 1)
        return found if found is not None and found.copy < copy_offset else None


def by_flow(claim: TranslationClaim) -> tuple[TranslationClaim, ...]:
    """Split a claim under one name into those of the two flows."""
    both = claim.facts, claim.facts.back
    return tuple(replace(claim, facts=replace(one, back=None)) for one in both if one is not None)


def unread_pair(claim: TranslationClaim) -> Pair | None:
    """Return the first pair of one flow that the group has not read, else its last one before.

    None: the flow has copied nothing. NotLoadedError: the loaded part of the map does not show it.
    """
    known, pairs, at = claim.facts.offset_map, Pairs(claim), claim.upstream_offset
    unread = known.next_record(known.next_unread(at) if claim.facts.direction == "reverse" else at)
    found = pairs.last() if unread is None else pairs.of_original(unread)
    if pairs.unknown:
        raise NotLoadedError("the loaded part of the map does not show the records at the place")
    return found


def pair_problem(
    claim: TranslationClaim, pair: Pair, records: tuple[ComparedRecord | None, ...]
) -> str:
    """Return why the records of a pair do not prove a claim of one flow; empty if they do."""
    offsets, (original, copy) = (pair.original, pair.copy), records
    there = f"the record at {pair.original} of {claim.original[0]}"
    if original is None or copy is None or (original.offset, copy.offset) != offsets:
        return f"{there}, or its copy at {pair.copy}, is gone"
    if fields := differences(original, copy):
        return f"{there} differs from its copy at {pair.copy} in {', '.join(fields)}"
    up, down = offsets if claim.facts.direction == "forward" else offsets[::-1]
    is_skipped = up >= claim.upstream_offset and down < claim.downstream_offset
    return f"{there}, whose copy is at {pair.copy}, would be skipped" if is_skipped else ""


@dataclass(frozen=True)
class Evidence:
    """First records at and after the offsets that a judgement wants (None: none).

    The rest are legitimate reasons for missing records: log starts, compaction, records not copied.
    """

    originals: Mapping[int, ComparedRecord | None]
    copies: Mapping[int, ComparedRecord | None]
    original_start: int
    copy_start: int
    original_compacted: bool
    copy_compacted: bool
    is_left_out: Callable[[ComparedRecord], bool]


def differences(original: ComparedRecord, copy: ComparedRecord) -> tuple[str, ...]:
    """Return the fields that differ, but for srm's headers and a timestamp of the broker."""
    plain = original._replace(headers=_plain(original.headers))
    other = copy._replace(headers=_plain(copy.headers))
    return differing_fields(plain, other, timestamps=not copy.by_broker)


def _plain(headers: Headers) -> Headers:
    return tuple(
        (name, value)
        for name, value in headers
        if name not in _OWN_HEADERS and Provenance.decode(value) is None
    )


class Judgement:
    """Judgement of a claim, from the next records in original and copy (None: none)."""

    def __init__(
        self, claim: TranslationClaim, original: ComparedRecord | None, copy: ComparedRecord | None
    ) -> None:
        self.claim = claim
        self._next_original, self._next_copy = original, copy
        self._original, self._original_offset = claim.original
        self._copy, self._copy_offset = claim.copy

    def is_plain_proof(self) -> bool:
        """Return True if the next records alone prove the claim: they are the same."""
        first, copy, pairs = self._next_original, self._next_copy, Pairs(self.claim)
        if first is None or copy is None:
            return False
        pair, of_copy = pairs.of_original(first.offset), pairs.of_copy(copy.offset)
        # Equal records may follow each other.
        is_skipped = pair is not None and pair.copy < self._copy_offset
        is_another = of_copy is not None and of_copy.original != first.offset
        return not is_skipped and not is_another and not differences(first, copy)

    def wanted_records(self) -> tuple[frozenset[int], frozenset[int]]:
        """Return the offsets in original and copy whose records a verdict needs."""
        pairs = Pairs(self.claim)
        last = pairs.last()
        found = [last]
        if self._next_original is not None:
            found.append(pairs.of_original(self._next_original.offset))
        if self._next_copy is not None:
            found.append(pairs.of_copy(self._next_copy.offset))
        known = [pair for pair in found if pair is not None]
        # After the last pair, or from the beginning: records that are not in the map.
        behind = Pair(-1, -1) if last is None else last
        return (
            frozenset({behind.original + 1, *(pair.original for pair in known)}),
            frozenset({behind.copy + 1, *(pair.copy for pair in known)}),
        )

    def verdict(self, evidence: Evidence) -> Verdict:
        """Judge a claim that the next records alone do not prove."""
        self._evidence, self._pairs = evidence, Pairs(self.claim)
        self._originals, self._copies = _exact(evidence.originals), _exact(evidence.copies)
        first = self._next_original
        pair = None if first is None else self._pairs.of_original(first.offset)
        if first is not None and pair is not None:
            return self._by_copy_of(first, pair)
        is_known = first is not None and not self._pairs.unknown
        if first is not None and is_known and self._has_to_have_a_copy(first):
            return self._wrong(
                f"{self._original} holds a record at {first.offset}, the map has no copy of it, "
                "and no loss was noted"
            )
        return self._by_next_copy() or self._by_last_pair()

    def _by_copy_of(self, first: ComparedRecord, pair: Pair) -> Verdict:
        copy = self._copies.get(pair.copy)
        if copy is None:
            if self._evidence.copy_start <= pair.copy and not self._evidence.copy_compacted:
                return self._wrong(
                    f"{self._copy} has no record at {pair.copy}, where the map has the "
                    f"copy of the one at {first.offset} of {self._original}"
                )
            return self._by_next_copy() or self._by_last_pair()
        if fields := differences(first, copy):
            return self._wrong(self._differ(pair, fields))
        if self._copy_offset > pair.copy:
            return self._wrong(self._describe_split(pair))
        return self._by_next_copy() or PROVEN

    def _by_next_copy(self) -> Verdict | None:
        """Judge by the original of the copy's next record; None if it proves nothing."""
        copy = self._next_copy
        pair = None if copy is None else self._pairs.of_copy(copy.offset)
        if copy is None or pair is None:
            return None
        original = self._originals.get(pair.original)
        around = self._evidence
        may_be_gone = around.original_start > pair.original or around.original_compacted
        if original is None and may_be_gone:
            return None
        if pair.original < self._original_offset:
            return self._wrong(self._describe_split(pair))
        if original is None:
            return self._wrong(
                f"{self._original} has no record at {pair.original}, where the map has the "
                f"original of the one at {copy.offset} of {self._copy}"
            )
        if fields := differences(original, copy):
            return self._wrong(self._differ(pair, fields))
        return self._by_skipped_pair(self._pairs.last()) or PROVEN

    def _by_skipped_pair(self, last: Pair | None) -> Verdict | None:
        """Judge by the last pair before the place in the copy, which is after that in the original.

        None if it is not, or if retention has deleted one of its records.
        """
        if last is None or last.original < self._original_offset:
            return None
        if self._originals.get(last.original) is None or self._copies.get(last.copy) is None:
            return None
        return self._wrong(self._describe_split(last))

    def _by_last_pair(self) -> Verdict:
        pair = self._pairs.last()
        if pair is None:
            return self._by_nothing_copied()
        original, copy = self._originals.get(pair.original), self._copies.get(pair.copy)
        if original is not None and copy is not None:
            if fields := differences(original, copy):
                return self._wrong(self._differ(pair, fields))
            if found := self._by_skipped_pair(pair):
                return found
            if self._has_record_between(pair):
                return Verdict("unproven", "there is a record that is not in the map")
            return PROVEN
        gone = self._original if original is None else self._copy
        return Verdict("unproven", f"no record to compare: those nearby are gone from {gone}")

    def _has_record_between(self, pair: Pair) -> bool:
        """Return True if a record is between the last pair and the place, on the side read next."""
        if self.claim.facts.direction == "forward":
            following = self._evidence.copies.get(pair.copy + 1)
            return following is not None and following.offset < self._copy_offset
        following, place = self._evidence.originals.get(pair.original + 1), self._original_offset
        if following is None or following.offset >= place:
            return False
        reached = following.offset
        for first, end in sorted(self.claim.facts.losses.discarded):
            if first <= reached:
                reached = max(reached, end)
        return reached < place

    def _by_nothing_copied(self) -> Verdict:
        """Judge a place in a copy that never had a record."""
        first = self._evidence.originals.get(0)
        nothing = self._evidence.copies.get(0, _UNREAD) is None
        begins = first is None or self._original_offset <= first.offset
        if nothing and begins:
            return PROVEN
        why = "the loaded part of the map does not show one" if self._pairs.unknown else ""
        return Verdict("unproven", f"no pair of records to compare{why and ': '}{why}")

    def _has_to_have_a_copy(self, original: ComparedRecord) -> bool:
        facts, losses = self.claim.facts, self.claim.facts.losses
        noted = losses.ranges or losses.elsewhere or losses.discarded or facts.gap or facts.damage
        may_be_missing = self.claim.skipped or noted or self._evidence.is_left_out(original)
        return self._pairs.reaches(original.offset) and not may_be_missing

    def _differ(self, pair: Pair, fields: tuple[str, ...]) -> str:
        return (
            f"the records at {pair.original} of {self._original} and at {pair.copy} of "
            f"{self._copy} differ in {', '.join(fields)}"
        )

    def _describe_split(self, pair: Pair) -> str:
        is_reverse = self.claim.facts.direction == "reverse"
        is_skipped = (pair.original < self._original_offset) == is_reverse
        what = "would be skipped" if is_skipped else "would be read again"
        return (
            f"the record at {pair.original} of {self._original}, whose copy is at {pair.copy} of "
            f"{self._copy}, {what}"
        )

    def _wrong(self, evidence: str) -> Verdict:
        claim = self.claim
        return Verdict(
            "disproved",
            f"{claim.facts.upstream} at {claim.upstream_offset} is not {claim.facts.downstream} at "
            f"{claim.downstream_offset}: {evidence}",
        )


def _exact(records: Mapping[int, ComparedRecord | None]) -> dict[int, ComparedRecord]:
    return {at: one for at, one in records.items() if one is not None and one.offset == at}


MOST_NAMED: Final = 50
"""Maximum partitions and groups named in a record; the counts include all."""
_MOST_UNREAD: Final = 1000


@dataclass(frozen=True, slots=True)
class Disproof:
    """A translation that the records of both sides contradict; partitions as ``topic-number``."""

    group: str
    upstream: str
    upstream_offset: int
    downstream: str
    downstream_offset: int
    evidence: str


@dataclass(frozen=True, slots=True)
class FlowProof(Document):
    """Proof results of one emission.

    ``time_ms`` is the start of reading the commits; as read back, by the broker's clock.
    ``sampled`` groups were checked. ``unproven`` has the reason of each other group, ``disproved``
    the translations found wrong, whose partitions' checkpoints are ``withheld``. Checkpoints of
    ``unread`` groups stay the same. The next emission continues after ``cursor``. ``skipped`` is
    the reason for checking nothing.
    """

    KIND = "stored proof of checkpoints"
    flow: str
    time_ms: int
    took_ms: int = 0
    groups: int = 0
    sampled: int = 0
    proven: int = 0
    unproven: Mapping[str, str] = field(default_factory=dict)
    disproved: tuple[Disproof, ...] = ()
    withheld: int = 0
    unread: tuple[str, ...] = ()
    cursor: str = ""
    skipped: str = ""

    @property
    def wrong_partitions(self) -> frozenset[str]:
        return frozenset(one.upstream for one in self.disproved)

    def confirms(self, group: str) -> bool:
        """Return True if the group's checkpoints were up to date then, rewritten or not."""
        unsure = {*self.unread, *(one.group for one in self.disproved)}
        return group not in unsure and not self.withheld and len(self.unread) < _MOST_UNREAD

    def line(self, now_ms: int) -> str:
        age = ago(now_ms - self.time_ms)
        if self.skipped:
            return f"{self.groups} groups not proven: {self.skipped}"
        text = f"{self.proven} of {self.sampled} groups proven {age}"
        if self.sampled < self.groups:
            text += f" (a sample of {self.groups})"
        if self.disproved:
            count = len(self.wrong_partitions)
            text += f", WRONG in {count} partition{'s' * (count != 1)}"
        elif not self.proven:  # a cluster that is silent refutes nothing
            text += "".join(f": {why}" for why in [*self.unproven.values()][:1])
        return text

    @staticmethod
    def key(flow: Flow) -> bytes:
        return f"proof:{flow}".encode()

    def value(self) -> bytes:
        """Encode as JSON with a bounded number of names, disproofs of each partition first."""
        one_each = {id(one) for one in {one.upstream: one for one in self.disproved}.values()}
        first = [one for one in self.disproved if id(one) in one_each][:_MOST_UNREAD]
        rest = [one for one in self.disproved if id(one) not in one_each]
        named = replace(
            self,
            unproven=dict(list(self.unproven.items())[:MOST_NAMED]),
            disproved=(*first, *rest[: max(0, MOST_NAMED - len(first))]),
            unread=self.unread[:_MOST_UNREAD],
        )
        return encode(named)


def choose(groups: Sequence[str], sizes: Mapping[str, int], cursor: str, budget: int) -> list[str]:
    """Choose groups after the cursor, then from the first; the first one whatever its size."""
    behind = [name for name in groups if name > cursor]
    chosen: list[str] = []
    left = budget
    for name in (*behind, *(name for name in groups if name <= cursor)):
        size = sizes.get(name, 0)
        if left <= 0 or (chosen and size > left):
            break
        chosen.append(name)
        left -= size
    return chosen


def merge_proofs(proofs: Iterable[FlowProof], start: FlowProof) -> FlowProof:
    for one in proofs:
        start = replace(
            start,
            groups=start.groups + one.groups,
            sampled=start.sampled + one.sampled,
            proven=start.proven + one.proven,
            unproven={**start.unproven, **one.unproven},
            disproved=(*start.disproved, *one.disproved),
            withheld=start.withheld + one.withheld,
            unread=(*start.unread, *one.unread),
            cursor=max(start.cursor, one.cursor),
            skipped=start.skipped or one.skipped,
        )
    return start
