"""Internal topics in memory, as those who write to them see them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass

from srm.errors import SrmError, UnavailableError
from srm.replication.ports import Place, WriteResult


@dataclass(frozen=True, slots=True)
class WrittenRecord:
    """One record, as it was handed over."""

    place: Place
    key: bytes
    value: bytes | None


class FakeStateLog:
    """Keeps what is written (implements the data plane's StateLog).

    Attributes:
        records: all records that were acknowledged, in order.
        away: places that are unreachable: a record written there is delayed until they are
            back.
        refused: places that refuse records, with the reason.
    """

    def __init__(self) -> None:
        self.records: list[WrittenRecord] = []
        self.away: set[Place] = set()
        self.refused: dict[Place, SrmError] = {}
        self._on_their_way: list[WrittenRecord] = []
        self._failed: dict[Place, SrmError] = {}
        self._ends: Counter[Place] = Counter()
        self._offsets = defaultdict[Place, dict[bytes, int]](dict)

    def write(self, topic: str, key: bytes, value: bytes | None, partition: int = 0) -> None:
        """See the port."""
        self._on_their_way.append(WrittenRecord((topic, partition), key, value))
        self._deliver()

    def waiting(self, place: Place) -> int:
        """See the port."""
        self._deliver()
        return sum(record.place == place for record in self._on_their_way)

    def settle(self, places: Collection[Place], timeout_s: float) -> WriteResult:
        """See the port; does not wait, as nothing changes in the meantime."""
        del timeout_s
        self._deliver()
        failed = {p: self._failed.pop(p) for p in places if p in self._failed}
        pending = frozenset(p for p in places if p not in failed and self.waiting(p))
        offsets = {p: self._offsets.pop(p) for p in places if p in self._offsets}
        return WriteResult(failed, pending, offsets)

    def flush(self, timeout_s: float) -> None:
        """See the port."""
        places = {record.place for record in self._on_their_way} | self._failed.keys()
        settled = self.settle(places, timeout_s)
        for failure in settled.failed.values():
            raise failure
        if settled.pending:
            raise UnavailableError(f"not acknowledged: {sorted(settled.pending)}")

    def table(self, place: Place) -> dict[bytes, bytes]:
        """Return the latest value of each key of a place."""
        rows = {record.key: record.value for record in self.records if record.place == place}
        return {key: value for key, value in rows.items() if value is not None}

    def _deliver(self) -> None:
        late = []
        for record in self._on_their_way:
            place = record.place
            if place in self.away:
                late.append(record)
            elif place in self.refused:
                self._failed[place] = self.refused[place]
            else:
                self.records.append(record)
                self._offsets[place][record.key] = self._ends[place]
                self._ends[place] += 1
        self._on_their_way = late
