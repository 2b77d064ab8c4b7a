"""The verdict: from the applications' own records and the producers' acknowledgements only.

A payment that a producer got an acknowledgement for must be in each application's record exactly
once. What is wrong is laid to the move that caused it. The stretch of a record on one cluster is a
**stint**; each stint but the first was begun by a move.

- *re-read*: a payment that is recorded again belongs to the move that began that stint.
- *skipped*: a missing payment belongs to the first stint that processed a later payment of the
  same original partition; where none did, to the last one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from srm_lab.demo.record import PaymentEntry

Home = tuple[str, int]
"""First place of a payment: cluster and partition."""


@dataclass(frozen=True)
class GroupAudit:
    """Audit of one application; counts are payments.

    ``unknown``: processed although no producer has an acknowledgement for them.
    ``by_stint``: processed, skipped and re-read in each stretch on one cluster.
    """

    group: str
    processed: int
    skipped: int
    re_read: int
    unknown: int
    by_stint: tuple[StintAudit, ...]
    examples: tuple[str, ...]


@dataclass(frozen=True)
class StintAudit:
    """One stretch of an application on one cluster."""

    cluster: str
    processed: int
    skipped: int
    re_read: int


def audit_group(
    group: str, acknowledged: Sequence[PaymentEntry], processed: Sequence[PaymentEntry]
) -> GroupAudit:
    """Compare an application's record with what was acknowledged."""
    known = {entry.payment: entry for entry in acknowledged}
    stints = number_stints(processed)
    seen: set[str] = set()
    re_read: Counter[int] = Counter()
    done: Counter[int] = Counter()
    examples: list[str] = []
    for entry, stint in zip(processed, stints, strict=True):
        done[stint] += 1
        if entry.payment in seen:
            re_read[stint] += 1
            examples.append(f"{entry.payment} again on {entry.cluster}")
        seen.add(entry.payment)
    missing = [entry for payment, entry in known.items() if payment not in seen]
    examples += [f"{entry.payment} never, written on {entry.cluster}" for entry in missing]
    last = stints[-1] if stints else 0
    skipped = _lay_to_stints(missing, _positions(known, processed, stints), last)
    clusters = {stint: entry.cluster for entry, stint in zip(processed, stints, strict=True)}
    return GroupAudit(
        group=group,
        processed=len(processed),
        skipped=len(missing),
        re_read=sum(re_read.values()),
        unknown=len(seen - known.keys()),
        by_stint=tuple(
            StintAudit(clusters.get(n, ""), done[n], skipped[n], re_read[n])
            for n in range(last + 1)
        ),
        examples=tuple(examples[:5]),
    )


def number_stints(processed: Iterable[PaymentEntry]) -> list[int]:
    """Number the stretches of a record on one cluster: 0, 0, ..., 1, 1, ..."""
    numbers: list[int] = []
    cluster, number = None, -1
    for entry in processed:
        if entry.cluster != cluster:
            cluster, number = entry.cluster, number + 1
        numbers.append(number)
    return numbers


def _positions(
    known: Mapping[str, PaymentEntry], processed: Sequence[PaymentEntry], stints: Sequence[int]
) -> dict[Home, list[tuple[int, int]]]:
    """List (original offset, stint) of everything processed, in order, by original partition."""
    positions: dict[Home, list[tuple[int, int]]] = defaultdict(list)
    for entry, stint in zip(processed, stints, strict=True):
        origin = known.get(entry.payment)
        if origin is not None:
            positions[origin.cluster, origin.partition].append((origin.offset, stint))
    for listed in positions.values():
        listed.sort()
    return positions


def _lay_to_stints(
    missing: Iterable[PaymentEntry], positions: Mapping[Home, list[tuple[int, int]]], last: int
) -> Counter[int]:
    skipped: Counter[int] = Counter()
    earliest = {home: _earliest_after(listed) for home, listed in positions.items()}
    for entry in missing:
        home = (entry.cluster, entry.partition)
        index = bisect_right(positions.get(home, []), (entry.offset, last))
        after = earliest.get(home, [])
        skipped[after[index] if index < len(after) else last] += 1
    return skipped


def _earliest_after(listed: Sequence[tuple[int, int]]) -> list[int]:
    """For each position, the lowest stint at it or after it."""
    lowest: list[int] = []
    for _, stint in reversed(listed):
        lowest.append(min(stint, lowest[-1]) if lowest else stint)
    return lowest[::-1]
