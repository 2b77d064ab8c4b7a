"""The table of metrics windows on a cluster: bounds to compute, writes and reads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from srm.domain.metrics.metrics import Keeping, WindowMetric, changes, latest
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow
from srm.engine.cluster_ports import Cluster
from srm.errors import UsageError


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """Size, slide, look-back and retention of the windows; milliseconds.

    After ``keep_all_ms`` only windows that do not overlap are kept (:class:`.Keeping`). Windows
    further in the future than the look-back are not kept.
    """

    window_ms: int = 60_000
    slide_ms: int = 10_000
    look_back_ms: int = 900_000
    keep_ms: int = 7_200_000
    keep_all_ms: int = 900_000

    def keeping(self, now_ms: int) -> Keeping:
        """Return the windows to keep at a time."""
        return Keeping(now_ms - self.keep_ms, now_ms - self.keep_all_ms, now_ms + self.look_back_ms)

    def __post_init__(self) -> None:
        """Reject a size that is not a multiple of the slide, or exceeds the look-back."""
        if self.slide_ms <= 0 or self.window_ms <= 0 or self.window_ms % self.slide_ms:
            raise UsageError(
                f"invalid window of {self.window_ms} ms; use a multiple of the slide of "
                f"{self.slide_ms} ms"
            )
        if self.look_back_ms < self.window_ms:
            raise UsageError(
                f"look-back of {self.look_back_ms} ms too short; use at least {self.window_ms} ms"
            )


@dataclass(frozen=True, slots=True)
class WindowBounds:
    """Windows to compute: they start at or after one time and end at or before another."""

    first_start_ms: int
    last_end_ms: int

    def hold(self, window: WindowMetric) -> bool:
        """Return whether the window is within these bounds."""
        return window.start_ms >= self.first_start_ms and window.end_ms <= self.last_end_ms


def bounds(spec: WindowSpec, now_ms: int, metrics_interval_ms: int) -> WindowBounds:
    """Return the windows that can be computed completely now.

    A window that started before the look-back misses raw records. One that ended less than a
    metrics interval ago may still receive some.
    """
    first = -(-(now_ms - spec.look_back_ms) // spec.slide_ms) * spec.slide_ms
    return WindowBounds(max(0, first), now_ms - metrics_interval_ms)


def store(
    cluster: Cluster, flow: Flow, computed: Iterable[WindowMetric], keeping: Keeping
) -> tuple[int, int]:
    """Write windows that differ from the stored ones, and drop expired ones.

    Returns:
        Numbers of windows written and dropped.
    """
    table = cluster.compacted_topic(internal_topics.METRICS_WINDOWS)
    written = changes(table.read(), computed, flow, keeping)
    if written:
        table.write(written)
    dropped = sum(value is None for value in written.values())
    return len(written) - dropped, dropped


def stored_windows(
    cluster: Cluster, flow: Flow | None = None, topic: str | None = None
) -> tuple[WindowMetric, ...]:
    """Return the stored windows by start time, of all flows into the cluster or of one.

    Args:
        cluster: the flows' target.
        flow: only this flow.
        topic: only this source topic; the empty name is the cluster level.
    """
    table = cluster.compacted_topic(internal_topics.METRICS_WINDOWS).read()
    found = [WindowMetric.decode(value) for value in table.values()]
    chosen = [
        w for w in found if (flow is None or w.flow == flow) and (topic is None or w.topic == topic)
    ]
    return tuple(sorted(chosen, key=lambda w: (w.start_ms, w.source, w.level, w.topic)))


def latest_windows(
    cluster: Cluster, flow: Flow | None = None, topic: str | None = None
) -> tuple[WindowMetric, ...]:
    """Return the newest window of each topic and flow; arguments as :func:`stored_windows`."""
    return latest(stored_windows(cluster, flow, topic))
