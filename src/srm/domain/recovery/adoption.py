"""Plan of an adoption: for each partition that others have filled, what was proven of its copy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from srm.domain.flow_state.replication_records import AssignedPartition
from srm.domain.names.topics import Flow
from srm.domain.offset_map.alignment import AlignedCopy, Ranges
from srm.domain.offset_map.runs import Runs, both_ends
from srm.domain.text.amount import amount, some

SLOT: Final = "import"
"""Slot name under which an adoption reports positions."""
_SHOWN: Final = 3

CopyState = Literal["adopt", "differs", "undecided", "own", "empty"]
"""``adopt``: the whole copy is proven. ``differs``: with skipped or foreign records, which have to
be accepted. ``undecided``: no map is proven. ``own``: nothing follows what srm copied. ``empty``:
nothing was copied."""


@dataclass(frozen=True, slots=True)
class AdoptedCopy:
    """One partition, walked up to both logs' ends; ``failure`` says why it was not.

    ``stored``: last copied offset by MirrorMaker 2's own record; None without one.
    ``by_record``: that record alone shows where the copy ended, see :func:`from_record`.
    """

    assigned: AssignedPartition
    target_end: int
    source_end: int
    aligned: AlignedCopy | None = None
    stored: int | None = None
    failure: str = ""
    by_record: bool = False

    @property
    def state(self) -> CopyState:
        found = self.aligned
        if self.failure:
            return "undecided"
        if found is None:
            return "empty"
        if not (found.copied or found.foreign or found.older or found.compacted or self.by_record):
            return "own"
        if found.late or not (found.copied or self.by_record):
            return "undecided"
        return "differs" if found.skipped or found.foreign else "adopt"

    @property
    def reason(self) -> str:
        """Reason for a state that needs one, and what else is not in the map."""
        found = self.aligned
        if self.failure or found is None:
            return self.failure
        texts = []
        if self.state == "undecided" and not found.copied:
            why = "perhaps after a transform, or of a former topic of that name"
            texts.append(f"no record of the target is in the source's log, {why}")
        if self.by_record:
            texts.append("no record is in both logs; MirrorMaker 2's own position counts")
        if found.late:
            texts.append(f"source offsets {_text_of(found.late)} were copied after later ones")
        if found.skipped:
            records = amount(found.skipped_records, "record")
            missing = "deleted there, perhaps before a copy," if self.by_record else "not copied"
            texts.append(f"{records} {missing} at source offsets {_text_of(found.skipped)}")
        if found.foreign:
            texts.append(f"foreign records at target offsets {_text_of(found.foreign)}")
        if found.older and found.copied:
            texts.append(f"the source has lost what target offsets {_text_of(found.older)} hold")
        if found.cut_short:
            texts.append(
                f"the last repeat did not reach source offsets {_text_of(found.cut_short)}: a key "
                "may have an older record last; let MirrorMaker 2 catch up first"
            )
        return "; ".join(texts)


@dataclass(frozen=True, slots=True)
class AdoptionPlan:
    """Plan for a flow; ``running`` says by what sign MirrorMaker 2 still runs, empty without."""

    flow: Flow
    copies: tuple[AdoptedCopy, ...]
    running: str = ""

    def to_adopt(self, *, accepted: bool) -> dict[str, tuple[AdoptedCopy, ...]]:
        """Return the topics to adopt with their partitions; ``accepted``: with differences."""
        good = {"adopt", "own", "empty", *(["differs"] if accepted else [])}
        by_topic: dict[str, list[AdoptedCopy]] = {}
        for one in self.copies:
            by_topic.setdefault(one.assigned.topic, []).append(one)
        return {
            topic: adopted
            for topic, copies in by_topic.items()
            if {one.state for one in copies} <= good
            if (adopted := tuple(one for one in copies if one.state in {"adopt", "differs"}))
        }

    def refusals(self, *, accepted: bool) -> tuple[AdoptedCopy, ...]:
        """Return the partitions that keep their topic from being adopted."""
        bad = {"undecided"} if accepted else {"undecided", "differs"}
        return tuple(one for one in self.copies if one.state in bad)


def from_record(
    stored: int | None, source: tuple[int, int], older: Ranges = ()
) -> AlignedCopy | None:
    """Return the copy of which no record is in both logs, by MirrorMaker 2's own position.

    Either the source has deleted all that was copied, or the target has. Source records that were
    deleted after the position count as skipped. None without a position, or if it does not fit.
    ``stored``: its last copied offset; ``source``: start and end of the source's log.
    ``older``: target offsets of records that the source has deleted; none if the target did.
    """
    start, end = source
    if stored is None or stored >= (start if older else end):
        return None
    lost = max(0, start - stored - 1)
    skipped = ((stored + 1, start),) if lost else ()
    return AlignedCopy(Runs(), max(start, stored + 1), 0, 0, skipped, lost, (), older, 0, ())


def _text_of(ranges: Ranges) -> str:
    return some([both_ends(*each) for each in ranges], _SHOWN)
