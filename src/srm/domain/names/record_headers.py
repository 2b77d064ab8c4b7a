"""Headers that srm adds to copied records, and what records' headers say of their copying.

Provenance (``provenance.header.name``), one per hop, oldest first; the value is UTF-8 text::

    <id of the origin cluster>,<topic there>,<epoch milliseconds of the copy>

Source offsets (``__source_offsets``), one per record; the value is a JSON object that each hop
extends: ``{"<alias of the cluster>": <offset there>, ...}``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final, Protocol, TypeVar

from srm.domain.names.policy import compile_pattern
from srm.errors import ConfigError

PROVENANCE_HEADER: Final = "__replicator_id"
SOURCE_OFFSETS_HEADER: Final = "__source_offsets"

_FOREVER_MS: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Provenance:
    """Origin of a record before this hop."""

    cluster_id: str
    topic: str
    time_ms: int

    def value(self) -> bytes:
        return f"{self.cluster_id},{self.topic},{self.time_ms}".encode()

    @classmethod
    def decode(cls, value: bytes | None) -> Provenance | None:
        """Decode a header's value; None if it is not one of srm."""
        try:
            cluster_id, topic, time_ms = (value or b"").decode().split(",")
            return cls(cluster_id, topic, int(time_ms))
        except ValueError:
            return None


@dataclass(frozen=True, slots=True)
class ProvenanceOverride:
    """Records to copy in spite of their origin; patterns match in full."""

    cluster_id: str
    topic: str
    from_ms: int = 0
    to_ms: int = _FOREVER_MS

    def matches(self, provenance: Provenance) -> bool:
        return (
            compile_pattern(self.cluster_id).fullmatch(provenance.cluster_id) is not None
            and compile_pattern(self.topic).fullmatch(provenance.topic) is not None
            and self.from_ms <= provenance.time_ms <= self.to_ms
        )


def parse_overrides(text: str) -> tuple[ProvenanceOverride, ...]:
    """Parse ``cluster regex,topic regex,from-to;...``; either time may be omitted."""
    return tuple(_override(part.strip()) for part in text.split(";") if part.strip())


def _override(text: str) -> ProvenanceOverride:
    cluster, first, rest = text.partition(",")
    topic, second, times = rest.rpartition(",")
    span = re.fullmatch(r"(\d*)-(\d*)", times.strip())
    if not (first and second and span):
        raise ConfigError(
            f"{text!r} is not of the form CLUSTER_ID,TOPIC,FROM-TO with times in epoch "
            "milliseconds, or - for any"
        )
    for pattern in (cluster, topic):
        compile_pattern(pattern)
    return ProvenanceOverride(
        cluster.strip(), topic.strip(), int(span[1] or 0), int(span[2] or _FOREVER_MS)
    )


def with_source_offset(value: bytes | None, alias: str, offset: int) -> bytes:
    """Return the value of the source offsets header with one more cluster."""
    try:
        offsets = json.loads(value or b"{}")
    except ValueError:
        offsets = {}
    known = offsets if isinstance(offsets, dict) else {}
    return json.dumps({**known, alias: offset}, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class RecordSettings:
    """Changes to copied records; records with a header like ``exclude_headers`` are not copied."""

    provenance: bool = False
    provenance_name: str = PROVENANCE_HEADER
    overrides: tuple[ProvenanceOverride, ...] = ()
    source_offsets: bool = False
    exclude_headers: tuple[str, ...] = ()

    @property
    def does_nothing(self) -> bool:
        return not (self.provenance or self.source_offsets or self.exclude_headers)

    @property
    def target_only(self) -> frozenset[str]:
        return frozenset({self.provenance_name, SOURCE_OFFSETS_HEADER})


Header = tuple[str, bytes | None]


class WithHeaders(Protocol):
    """A record of a log, fetched or consumed."""

    @property
    def offset(self) -> int:
        """Offset in its log."""
        ...

    @property
    def headers(self) -> Sequence[Header]:
        """Headers in order."""
        ...


RecordT = TypeVar("RecordT", bound=WithHeaders)


@dataclass(frozen=True, slots=True)
class ClusterIds:
    """Kafka's ids of the two clusters of a flow."""

    source: str
    target: str


@dataclass(frozen=True)
class Transform:
    """The settings of a flow, for one topic."""

    settings: RecordSettings
    clusters: ClusterIds
    source_alias: str
    topic: str
    target_topic: str

    @property
    def drops_some(self) -> bool:
        """True if records with certain headers are skipped."""
        return bool(self.settings.provenance or self.settings.exclude_headers)

    def select(self, records: Sequence[RecordT]) -> Sequence[RecordT]:
        """Return the records that are copied."""
        if not self.drops_some:
            return records
        return [record for record in records if not (record.headers and self.drops(record))]

    def drops(self, record: WithHeaders) -> bool:
        """Return whether a record is skipped: from this topic, or with an excluded header."""
        excluded = self.settings.exclude_headers
        return self.returns(record) or bool(
            excluded and any(_matches(excluded, name) for name, _ in record.headers)
        )

    def returns(self, record: WithHeaders) -> bool:
        """Return whether a record of the source is skipped as it came from the target's topic."""
        return self.settings.provenance and any(
            not any(override.matches(found) for override in self.settings.overrides)
            for found in self._provenances(record, self._here)
        )

    def is_copy(self, record: WithHeaders) -> bool:
        """Return whether a record of the target came from the source's topic, by any tool."""
        return any(True for _ in self._provenances(record, self._there))

    def is_of_another(self, record: WithHeaders) -> bool | None:
        """Return whether a record of the target came by a flow from another topic, if it shows."""
        name = self.settings.provenance_name
        *_, hop = (None, *(value for header, value in record.headers if header == name))
        if hop is None or Provenance.decode(hop) is None:
            return None
        return not hop.startswith(self._there)

    def came_by_hops(self, record: WithHeaders) -> bool:
        """Return whether a record of the source is a copy of a third cluster's."""
        return any(True for _ in self._provenances(record, b""))

    @cached_property
    def _here(self) -> bytes:
        return f"{self.clusters.target},{self.target_topic},".encode()

    @cached_property
    def _there(self) -> bytes:
        return f"{self.clusters.source},{self.topic},".encode()

    def _provenances(self, record: WithHeaders, place: bytes) -> Iterator[Provenance]:
        for name, value in record.headers:
            if name == self.settings.provenance_name and value and value.startswith(place):
                found = Provenance.decode(value)
                if found is not None:
                    yield found

    def headers_of(self, time_ms: int) -> Callable[[WithHeaders], list[Header]] | None:
        """Return what gives records copied at a time their headers; None where they keep theirs."""
        settings, alias = self.settings, self.source_alias
        provenance = Provenance(self.clusters.source, self.topic, time_ms).value()
        added = (settings.provenance_name, provenance)
        if not settings.source_offsets:
            return (lambda record: [*record.headers, added]) if settings.provenance else None
        first = f'{{"{alias}":'

        def headers(record: WithHeaders) -> list[Header]:
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


@lru_cache(maxsize=4096)
def _matches(patterns: tuple[str, ...], name: str) -> bool:
    return any(compile_pattern(pattern).fullmatch(name) for pattern in patterns)
