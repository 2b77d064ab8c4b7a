"""Headers that srm adds to copied records, and exclusion of records by their headers.

Provenance (``provenance.header.name``), one per hop, oldest first; the value is UTF-8 text::

    <id of the origin cluster>,<topic there>,<epoch milliseconds of the copy>

Source offsets (``__source_offsets``), one per record; the value is a JSON object that each hop
extends: ``{"<alias of the cluster>": <offset there>, ...}``.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Final

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
        """Encode the header's value."""
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
        """Return True if the override applies to a header."""
        return (
            re.fullmatch(self.cluster_id, provenance.cluster_id) is not None
            and re.fullmatch(self.topic, provenance.topic) is not None
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
        try:
            re.compile(pattern)
        except re.error as error:
            raise ConfigError(f"{pattern!r} is not a regular expression: {error}") from None
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
        """True if records are copied unchanged."""
        return not (self.provenance or self.source_offsets or self.exclude_headers)

    @property
    def target_only(self) -> frozenset[str]:
        """Names of headers that only the target may have."""
        return frozenset({self.provenance_name, SOURCE_OFFSETS_HEADER})
