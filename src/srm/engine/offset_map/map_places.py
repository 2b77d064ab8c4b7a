"""Cache of records of the offset map topic by place."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import Final

from srm.domain.offset_map.map_rebuild import Placed
from srm.domain.offset_map.map_rows import Need
from srm.engine.ports import CompactedTopic

_KEPT_BYTES: Final = 32 << 20
_ROW_BYTES: Final = 300  # overhead of Python per row
_Row = tuple[bytes, bytes]


class MapPlaces:
    """Reads and caches needed records of a map topic.

    A record at a place never changes, it can only be deleted; a newer version has another place. So
    records are cached, up to a bounded size.

    Args:
        partition: returns one partition of the topic.
        kept_bytes: size of the cache.
    """

    def __init__(
        self, partition: Callable[[int], CompactedTopic], kept_bytes: int = _KEPT_BYTES
    ) -> None:
        self._partition = partition
        self._limit = kept_bytes
        self._size = 0
        self._rows: OrderedDict[tuple[int, Need], _Row] = OrderedDict()

    def read(self, number: int, needs: Collection[Need]) -> dict[Need, _Row]:
        """Return the needed records of a partition; records that are not in place are omitted."""
        found: dict[Need, _Row] = {}
        for need in needs:
            row = self._rows.get((number, need))
            if row is not None:
                self._rows.move_to_end((number, need))
                found[need] = row
        places = {need.place for need in needs if need not in found}
        if not places:
            return found
        rows = self._partition(number).at(places)
        for need in needs:
            key, value = rows.get(need.place, (b"", None))
            if need not in found and value is not None and need.matches(key):
                found[need] = key, value
                self._keep((number, need), (key, value))
        return found

    def search(self, number: int, needs: Collection[Need]) -> dict[Need, _Row]:
        """Return records with stale places, by their complete keys.

        The whole partition is read; other records are not cached.
        """
        wanted = {need.prefix: need for need in needs}
        latest: dict[bytes, bytes | None] = {}

        def visit(_place: int, key: bytes, value: bytes | None) -> None:
            if key in wanted:
                latest[key] = value

        self._partition(number).scan(visit)
        return {wanted[key]: (key, value) for key, value in latest.items() if value is not None}

    def records(self, number: int, chosen: Callable[[bytes], bool]) -> dict[bytes, Placed]:
        """Return the newest records of the chosen keys of a partition."""
        newest: dict[bytes, Placed] = {}

        def visit(place: int, key: bytes, value: bytes | None) -> None:
            if value is None:
                newest.pop(key, None)
            elif chosen(key):
                newest[key] = Placed(place, value)

        self._partition(number).scan(visit)
        return newest

    def _keep(self, place: tuple[int, Need], row: _Row) -> None:
        self._rows[place] = row
        self._size += len(row[0]) + len(row[1]) + _ROW_BYTES
        while self._size > self._limit:
            _, (key, value) = self._rows.popitem(last=False)
            self._size -= len(key) + len(value) + _ROW_BYTES
