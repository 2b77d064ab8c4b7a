"""Transforms of a topic's records: added headers, filtered records."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from srm.clock import now_ms
from srm.domain.names.record_headers import (
    SOURCE_OFFSETS_HEADER,
    Provenance,
    RecordSettings,
    with_source_offset,
)
from srm.replication.batches.rebuild import HeadersOf
from srm.replication.ports import DecodedRecord, Header


@dataclass(frozen=True, slots=True)
class ClusterIds:
    """Kafka's ids of the two clusters of a flow."""

    source: str
    target: str


class Transform:
    """The settings of a flow, for one topic."""

    def __init__(
        self,
        settings: RecordSettings,
        clusters: ClusterIds,
        source_alias: str,
        topic: str,
        target_topic: str,
    ) -> None:
        patterns = [re.compile(pattern) for pattern in settings.exclude_headers]
        self._settings = settings
        self._source_id = clusters.source
        self._source_alias = source_alias
        self._topic = topic
        self._excluded = cache(lambda name: any(p.fullmatch(name) for p in patterns))
        self._here = f"{clusters.target},{target_topic},".encode()
        self._there = f"{clusters.source},{topic},".encode()
        self.drops_some = bool(settings.provenance or patterns)

    def select(self, records: Sequence[DecodedRecord]) -> Sequence[DecodedRecord]:
        """Return the records that are copied."""
        if not self.drops_some:
            return records
        return [record for record in records if not (record.headers and self.drops(record))]

    def drops(self, record: DecodedRecord) -> bool:
        """Return whether a record is skipped: from this topic, or with an excluded header."""
        return self.returns(record) or any(self._excluded(name) for name, _ in record.headers)

    def returns(self, record: DecodedRecord) -> bool:
        """Return whether a record of the source is skipped as it came from the target's topic."""
        overrides = self._settings.overrides
        return self._settings.provenance and any(
            not any(override.matches(found) for override in overrides)
            for found in self._provenances(record, self._here)
        )

    def is_copy(self, record: DecodedRecord) -> bool:
        """Return whether a record of the target came from the source's topic, by any tool."""
        return any(True for _ in self._provenances(record, self._there))

    def is_of_another(self, record: DecodedRecord) -> bool | None:
        """Return whether a record of the target came by a flow from another topic, if it shows."""
        name = self._settings.provenance_name
        *_, hop = (None, *(value for header, value in record.headers if header == name))
        if hop is None or Provenance.decode(hop) is None:
            return None
        return not hop.startswith(self._there)

    def came_by_hops(self, record: DecodedRecord) -> bool:
        """Return whether a record of the source is a copy of a third cluster's."""
        return any(True for _ in self._provenances(record, b""))

    def _provenances(self, record: DecodedRecord, place: bytes) -> Iterator[Provenance]:
        for name, value in record.headers:
            if name == self._settings.provenance_name and value and value.startswith(place):
                found = Provenance.decode(value)
                if found is not None:
                    yield found

    def headers_of(self) -> HeadersOf | None:
        """Return what gives records of now their headers; None where they keep theirs."""
        settings, alias = self._settings, self._source_alias
        provenance = Provenance(self._source_id, self._topic, now_ms()).value()
        added = (settings.provenance_name, provenance)
        if not settings.source_offsets:
            return (lambda record: [*record.headers, added]) if settings.provenance else None
        first = f'{{"{alias}":'

        def headers(record: DecodedRecord) -> list[Header]:
            kept = record.headers
            value = f"{first}{record.offset}}}".encode()
            for name, known in kept:
                if name == SOURCE_OFFSETS_HEADER:
                    value = with_source_offset(known, alias, record.offset)
                    kept = [header for header in kept if header[0] != SOURCE_OFFSETS_HEADER]
            found = [*kept, (SOURCE_OFFSETS_HEADER, value)]
            if settings.provenance:
                found.append(added)
            return found

        return headers
