"""Cases of the benchmark: data, amount and conditions."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal

from bench.data import Payload
from bench.engines import PROVENANCE_KEY
from srm.config.keys import find_key

Kind = Literal[
    "copy", "compacted", "latency", "busy", "pauses", "slot-lost", "claim", "idle", "start"
]
ENGINE_NAMES: Final = ("mm2-default", "mm2-tuned", "srm")
SOCKET_COPY: Final = "socket-copy"


@dataclass(frozen=True)
class Surroundings:
    """Conditions of an engine, shared by the cases of a session.

    Attributes:
        name: identifies the session.
        far: the cluster on the slow line, ``source`` or ``target``, if any.
        provenance: whether records get a header that names their origin.
    """

    name: str
    far: Literal["source", "target"] | None = None
    provenance: bool = False


EVENT: Final = Payload(200)
PLAIN: Final = Surroundings("plain")
QUIET: Final = Surroundings("quiet")


@dataclass(frozen=True)
class Case:
    """One case.

    Attributes:
        records: for MirrorMaker 2. srm gets ``fast_factor`` times as many, else its copy would be
            too short for clock ticks of 10 ms.
        lead_in: such records copied before and not counted, as a share of ``records``; for a
            compacted topic, the share of the topic.
        limit_s: time limit of the figures.
        rate: records per second of a latency case.
    """

    name: str
    kind: Kind
    surroundings: Surroundings = PLAIN
    payload: Payload = EVENT
    partitions: int = 4
    records: int = 0
    fast_factor: int = 1
    lead_in: float = 0.25
    limit_s: float = 90.0
    rate: int = 0
    seconds: float = 0.0
    engines: Collection[str] = ENGINE_NAMES

    @property
    def title(self) -> str:
        """Describe it in a few words."""
        if self.kind in ("copy", "compacted"):
            many = "1 partition" if self.partitions == 1 else f"{self.partitions} partitions"
            far = self.surroundings.far
            extra = {
                "compacted": ", half of the records removed by compaction",
                "copy": ", provenance headers" if self.surroundings.provenance else "",
            }[self.kind]
            line = f", {far} at 50 ms" if far else ""
            return f"{self.payload.title}, {many}{extra}{line}"
        return {
            "latency": f"{self.rate:,} records/s",
            "busy": f"{self.rate:,} records/s while every core is busy with something else",
            "pauses": f"{self.rate:,} records/s while topics are added",
            "slot-lost": f"{self.rate:,} records/s while one of two slots is killed",
            "claim": "first record of each of 64 partitions after its slot was killed",
            "idle": f"{self.partitions} quiet partitions",
            "start": "one topic, just started",
        }[self.kind]

    def sized(self, fraction: float) -> Case:
        """Return the case with that fraction of the records."""
        return replace(self, records=int(self.records * fraction))


# Batches of 128 KB on the wire, as from a loaded producer with batch.size = 131072; the Java
# producer counts compressed bytes.
RANDOM_1KB: Final = Payload(1000, batch_records=128)
RANDOM_100B: Final = Payload(100, batch_records=1100)
JSON_LZ4: Final = Payload(380, "json", "lz4", 1750)
JSON_ZSTD: Final = Payload(10_000, "json", "zstd", 90)
# As from a producer with default settings: batch.size is 16 384.
SMALL_1KB: Final = Payload(1000, batch_records=16)
SMALL_LZ4: Final = Payload(380, "json", "lz4", 43)
SMALL_ZSTD: Final = Payload(380, "json", "zstd", 43)
TINY: Final = Payload(512)

_FAR_TARGET: Final = Surroundings("far-target", far="target")
_FAR_SOURCE: Final = Surroundings("far-source", far="source")
_FAR_TINY: Final = Surroundings("far-target-tiny", far="target")
_PROVENANCE: Final = Surroundings("provenance", provenance=True)

CASES: Final = (
    Case("start", "start", QUIET),
    Case("latency-1000", "latency", QUIET, rate=1000, seconds=15),
    Case("latency-20000", "latency", QUIET, rate=20_000, seconds=15),
    Case("latency-busy", "busy", QUIET, rate=1000, seconds=15),
    Case("pauses", "pauses", QUIET, rate=1000, seconds=15, engines=("mm2-default", "srm")),
    Case("slot-lost", "slot-lost", QUIET, rate=1000, seconds=12, engines=("srm",)),
    Case("claim", "claim", QUIET, partitions=64, rate=20, seconds=3.2, engines=("srm",)),
    Case("idle", "idle", QUIET, partitions=100, seconds=20),
    Case("compacted", "compacted", payload=RANDOM_1KB, records=1_600_000, lead_in=0.5),
    Case("1kb-16kb", "copy", payload=SMALL_1KB, records=600_000, fast_factor=2),
    Case("lz4-16kb", "copy", payload=SMALL_LZ4, records=1_000_000, fast_factor=2),
    Case("zstd-16kb", "copy", payload=SMALL_ZSTD, records=1_000_000, fast_factor=2),
    Case("1kb-16kb-1p", "copy", payload=SMALL_1KB, partitions=1, records=300_000, fast_factor=2),
    Case("1kb", "copy", payload=RANDOM_1KB, records=800_000, fast_factor=2),
    Case("100b", "copy", payload=RANDOM_100B, records=3_000_000, fast_factor=4),
    Case("json-lz4", "copy", payload=JSON_LZ4, records=1_500_000, fast_factor=8),
    Case("10kb-zstd", "copy", payload=JSON_ZSTD, records=60_000, fast_factor=8),
    Case("tiny", "copy", payload=TINY, records=200_000, fast_factor=3),
    Case("1kb-1p", "copy", payload=RANDOM_1KB, partitions=1, records=500_000, fast_factor=2),
    Case("1kb-64p", "copy", payload=RANDOM_1KB, partitions=64, records=800_000, fast_factor=2),
    Case("provenance", "copy", _PROVENANCE, RANDOM_1KB, records=500_000),
    Case("far-target", "copy", _FAR_TARGET, RANDOM_1KB, 1, 200_000, 4, 0.02, 15),
    Case("far-source", "copy", _FAR_SOURCE, RANDOM_1KB, 1, 200_000, 4, 0.02, 15),
    Case("far-target-tiny", "copy", _FAR_TINY, TINY, 1, 20_000, 5, 0.02, 15),
)
"""All cases, in the order of a full run. ``compacted`` starts its session: its topic exists before
the engine."""

SHORT: Final = ("1kb", "tiny", "latency-1000")
"""Cases of a short run, in order: latency last, when everything is warm."""

SHORT_FRACTION: Final = 0.25
_SHORT_LATENCY_S: Final = 5.0


def short_cases() -> list[Case]:
    """Return the cases of the short mode, all in one session of each engine."""
    by_name = {case.name: case for case in CASES}
    return [
        replace(by_name[name].sized(SHORT_FRACTION), surroundings=PLAIN, seconds=_SHORT_LATENCY_S)
        for name in SHORT
    ]


def available(cases: Iterable[Case]) -> list[Case]:
    """Leave out cases whose settings this version of srm lacks."""
    has_provenance = find_key(PROVENANCE_KEY) is not None
    return [case for case in cases if has_provenance or not case.surroundings.provenance]


def by_surroundings(cases: Iterable[Case]) -> dict[Surroundings, list[Case]]:
    """Group cases into sessions."""
    groups: dict[Surroundings, list[Case]] = {}
    for case in cases:
        groups.setdefault(case.surroundings, []).append(case)
    return groups
