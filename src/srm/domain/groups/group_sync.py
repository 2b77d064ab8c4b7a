"""Decision for one partition: write a translated offset for a group, or leave the group's own.

MM2 writes if the group has no offset or a lower one, and never lowers: that undoes a rewind by an
operator, and never carries one over. The ledger of own writes (``__srm-ledger`` on each cluster:
one partition, compacted, JSON) preserves both intentions:

========================================  ====================================================
the group's offset on the target          decision for a translated offset t
========================================  ====================================================
none                                      write
equal to t                                unchanged
not ours, lower than srm's last write     leave: an operator rewound the group here
lower than t                              write: own write or consumers, both are before t
higher than t, own write for this flow    write: the group was rewound on the source
higher than t                             leave: consumers (or another flow) are ahead here
========================================  ====================================================

An entry is written *before* the offset. Until it is settled (the offset was read back) a crash can
have left the old or the new offset, so both count as srm's. Entries of a topic that was deleted and
re-created do not count.

Flows from several clusters may copy into one name. A group that is on each of them has read what is
before the lowest of their translations: that one is written, and the ledger keeps all of them.

An offset that srm has written within 7 days, before brokers expire it, and that is absent now was
deleted there. If the group's route leads there, it is not written again, as the same commit on the
source is from before the move.

A commit on the source that srm itself carried over from the target does not count as progress and
is not carried back (``own-write``). srm writes only to idle groups, and repeats every decision with
the offsets read just before the write.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from json.encoder import encode_basestring_ascii as _quote
from typing import Final, Literal

from pydantic_core import from_json

from srm.domain.groups.checkpoints import CheckpointOutcome
from srm.domain.groups.translation import UNFINISHED
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.text.documents import adapter, decode_or_none
from srm.errors import IntegrityError


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One write of a group offset by srm; ``settled`` once it was read back.

    ``topic_id`` is that of the topic on the cluster of the ledger. ``previous`` is the offset
    before, ``previous_own`` if srm had written it, too. ``origin`` is the cluster whose commit was
    carried over, ``operation`` the run or move. ``progress``: for each source the offset that its
    flow alone would set. ``before_syncs``: offset of the group or of a move that syncs have carried
    on since, None if unknown. ``time_ms`` is the timestamp of its record, 0 before it is written.
    """

    group: str
    topic_partition: TopicPartition
    topic_id: str
    previous: int | None
    intended: int
    origin: str
    operation: str
    previous_own: bool = False
    settled: bool = False
    progress: Mapping[str, int] = field(default_factory=dict)
    before_syncs: int | None = None
    time_ms: int = 0

    def owns(self, offset: int) -> bool:
        """Return True if a committed offset is this write, not one of a consumer or operator."""
        return offset == self.intended or (not self.settled and offset == self.previous)

    def may_lower(self, offset: int) -> bool:
        """Return True if lowering a committed offset certainly undoes no commit of a consumer."""
        return offset == self.intended or (self.previous_own and self.owns(offset))

    def continues_from(self, cluster: str, offset: int) -> bool:
        """Return True if a group at an offset came from a cluster by this write and read on."""
        return self.settled and cluster in {self.origin, *self.progress} and offset >= self.intended

    def as_settled(self) -> LedgerEntry:
        """Return the entry after its write was read back, ready to be written."""
        return replace(self, settled=True, time_ms=0)

    def key(self) -> bytes:
        return ledger_key(self.group, self.topic_partition)

    def value(self) -> bytes:
        """Encode the record value; a rewritten entry keeps the time of its first record."""
        named = {one.name: getattr(self, one.name) for one in fields(self)}
        del named["group"], named["topic_partition"]  # the key has them
        return json.dumps(named, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, key: bytes, value: bytes, timestamp_ms: int = 0) -> LedgerEntry:
        """Decode one record of the ledger topic; ignore fields of later versions."""
        try:
            group, *place = from_json(key)
            named = {**from_json(value), "group": group, "topic_partition": place}
            named["time_ms"] = named.get("time_ms") or timestamp_ms
            return adapter(cls).validate_python(named)
        except (ValueError, TypeError) as error:
            raise IntegrityError(
                f"ledger record with key {key[:80]!r} is damaged ({error!r}): "
                "delete the record or restore the topic __srm-ledger"
            ) from error


def ledger_key(group: str, partition: TopicPartition) -> bytes:
    return f"[{_quote(group)},{_quote(partition.topic)},{partition.partition}]".encode()


def all_entries(records: Mapping[bytes, bytes]) -> Iterator[LedgerEntry]:
    """Decode all readable records, also those of deleted topics."""
    for key, value in records.items():
        with suppress(IntegrityError):
            yield LedgerEntry.decode(key, value)


class GroupLedger:
    """All valid entries of one cluster, each decoded once, on access: there are those of all syncs.

    ``rows``: values of the topic's records with their timestamps (epoch ms). ``topic_ids`` by the
    names of the cluster's topics, read before. A damaged record is skipped.
    """

    def __init__(
        self, rows: Mapping[bytes, tuple[bytes, int]], topic_ids: Mapping[str, str]
    ) -> None:
        self._rows = rows
        self._decoded: dict[bytes, LedgerEntry | None] = {}
        self._topic_ids = topic_ids

    def topic_id(self, topic: str) -> str:
        """Return the id of a topic, empty if the cluster has no such topic."""
        return self._topic_ids.get(topic, "")

    def entries(self) -> Iterator[LedgerEntry]:
        found = map(self._find, self._rows)
        return (entry for entry in found if entry is not None)

    def entry(self, group: str, partition: TopicPartition) -> LedgerEntry | None:
        """Return srm's latest write for a group and partition, None if it never wrote."""
        return self._find(ledger_key(group, partition))

    def _find(self, key: bytes) -> LedgerEntry | None:
        if key in self._rows and key not in self._decoded:
            value, time_ms = self._rows[key]
            found = decode_or_none(value, lambda it: LedgerEntry.decode(key, it, time_ms))
            counts = found and found.topic_id == self.topic_id(found.topic_partition.topic)
            self._decoded[key] = found if counts else None
        return self._decoded.get(key)


IDLE: Final = frozenset({"empty", "dead"})
"""States of a group that may be written to; any other or unknown state counts as active."""

SyncAction = Literal[
    "write",
    "unchanged",
    "consumer-ahead",
    "rewind-respected",
    "floor-kept",
    "group-active",
    "not-translated",
    "own-write",
    "deleted-there",
    "not-written",
    "failed",
]


@dataclass(frozen=True, slots=True)
class SyncDecision:
    """Action for one (group, partition) of the flow's target, with the reason.

    ``current`` is the commit found there, ``offset`` the translated one, in place once ``applied``.
    Where other sources count, too, it is the lowest, and ``progress`` this flow's. ``not-written``
    was abandoned before the write; ``failed`` may have been written or not.
    """

    group: str
    partition: TopicPartition
    action: SyncAction
    current: int | None = None
    offset: int | None = None
    reason: str = ""
    applied: bool = False
    progress: int | None = None

    @property
    def in_place(self) -> bool:
        return self.applied or self.action == "unchanged"


def decide(
    outcome: CheckpointOutcome,
    current: int | None,
    entry: LedgerEntry | None,
    flow: Flow,
    upstream_entry: LedgerEntry | None = None,
    joined: Collection[str] = (),
) -> SyncDecision:
    """Decide about one translated commit of an idle group.

    ``entry`` and ``upstream_entry`` are srm's latest writes on the target, and of the commit
    itself. ``joined``: other clusters whose records the partition on the target holds, too.
    """
    checkpoint = outcome.checkpoint
    offset = None if checkpoint is None else checkpoint.downstream_offset
    partition = outcome.downstream or outcome.upstream
    decision = SyncDecision(outcome.group, partition, "not-translated", current)
    if offset is None:
        why = ": ".join(part for part in (outcome.state, outcome.reason) if part)
        return replace(decision, reason=why)
    carried = upstream_entry if upstream_entry and upstream_entry.origin == flow.target else None
    if carried is not None and carried.owns(outcome.upstream_offset):
        why = f"srm wrote this offset, {flow.target} already has it"
        return replace(decision, action="own-write", reason=why)
    known = entry.progress if entry is not None else {}
    others = {alias: known[alias] for alias in sorted(joined) if alias in known}
    lowest = min(others, key=others.__getitem__, default=None)
    progress, held = offset if joined else None, ""
    if lowest is not None and others[lowest] < offset:
        held = f"; the group on {lowest} has read up to here, that on {flow.source} to {offset}"
        offset = others[lowest]
    sources = {flow.source, *others}
    action, reason = _onto(outcome, offset, current, entry, sources)
    reason = (reason + held).removeprefix("; ")
    return replace(decision, action=action, offset=offset, reason=reason, progress=progress)


def _onto(
    outcome: CheckpointOutcome,
    offset: int,
    current: int | None,
    entry: LedgerEntry | None,
    sources: Collection[str],
) -> tuple[SyncAction, str]:
    if current is None or current == offset:
        return ("unchanged", "") if current == offset else ("write", "the group has no offset here")
    if entry is not None and not entry.owns(current) and current < entry.intended:
        return "rewind-respected", f"the group was rewound here, below srm's {entry.intended}"
    if current < offset:
        return "write", f"replaces {current}"
    if entry is None or entry.origin not in sources or not entry.may_lower(current):
        return "consumer-ahead", f"the group's own {current} is ahead of {offset}"
    if outcome.state in UNFINISHED:
        return "floor-kept", "the map does not reach the commit, so the offset is not lowered"
    return "write", f"the group was rewound on {entry.origin}, srm's own {current} follows"
