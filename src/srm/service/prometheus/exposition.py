"""Metrics of requests, and of flows by the latest looks: for a scrape, and by OTLP if enabled."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client import Counter as RequestCounter
from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from srm import __version__, telemetry
from srm.domain.metrics import Statistics
from srm.domain.moves.disaster import Drill
from srm.domain.moves.progress import DECIDED, ENDED, HELD
from srm.domain.names.topics import Flow
from srm.engine.metrics.metrics import is_fresh
from srm.engine.status.observing import FlowState
from srm.engine.status.status import FlowStatus
from srm.service.federation.federation import path_of
from srm.service.prometheus.metric_table import (
    METRICS,
    PARTITION_STATES,
    STATES,
    TOPIC_HEALTH,
    TOPIC_STATES,
    UNITS,
    Metric,
)
from srm.service.views import flow_rows
from srm.service.views.documents import FlowSummary, GroupRow, TopicRow
from srm.service.views.flow_rows import FlowLook, MoveLook, TargetLook
from srm.service.views.series import Measured
from srm.service.views.views import Views

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
REQUESTS: Final = "srm_service_requests_total"
DURATION: Final = "srm_service_request_duration_seconds"
NO_ROUTE: Final = "(none)"
_UNTRACED: Final = ("/metrics", "/health", "/static")
"""Routes without traces, as machines request them all the time."""


def route_of(scope: Scope) -> str:
    path = getattr(scope.get("route"), "path", None)
    if path is None and scope.get("endpoint") is not None:
        path = scope.get("root_path", "").removeprefix(scope.get("app_root_path", ""))
    return path or NO_ROUTE


class WatchRequests:
    """ASGI middleware that counts each request, and creates a span in the trace of its caller.

    It counts by route, not by path, so that the number of series is bounded.
    """

    def __init__(self, app: ASGIApp, exposition: Exposition) -> None:
        self._app = app
        self._exposition = exposition
        self._traces = telemetry.is_enabled("TRACES")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.monotonic(), 500

        async def note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        with self._span(scope) as span:
            try:
                await self._app(scope, receive, note)
            finally:
                method = scope["method"] if scope["method"] in _METHODS else "other"
                route, seconds = route_of(scope), time.monotonic() - began
                self._exposition.requests.labels(method, route, str(status)).inc()
                self._exposition.durations.labels(method, route).observe(seconds)
                if span is not None:
                    attributes = {
                        "http.request.method": scope["method"],
                        "http.route": route,
                        "http.response.status_code": status,
                        "url.path": scope["path"],
                    }
                    span.rename(f"{scope['method']} {route}", **attributes)

    def _span(self, scope: Scope) -> AbstractContextManager[telemetry.Notes | None]:
        if not self._traces or path_of(Request(scope)).startswith(_UNTRACED):
            return nullcontext()
        headers = {name.decode(): value.decode("latin-1") for name, value in scope["headers"]}
        return telemetry.span(scope["method"], kind="SERVER", carrier=headers)


_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Exposition:
    """Answers scrapes; thread-safe. The text of the flows is made once per look."""

    def __init__(self, views: Views) -> None:
        self.process = CollectorRegistry()
        self.requests = RequestCounter(
            REQUESTS,
            "Requests answered by the service.",
            ("method", "route", "status"),
            registry=self.process,
        )
        self.durations = Histogram(
            DURATION,
            "Time from a request until its answer was sent.",
            ("method", "route"),
            registry=self.process,
            buckets=_BUCKETS,
        )
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.process)
        self._views = views
        self._lock = threading.Lock()
        self._made: dict[bool, tuple[tuple[object, ...], bytes]] = {}

    def scrape(self, accept: str) -> tuple[bytes, str]:
        encode, content_type = choose_encoder(accept)
        openmetrics = content_type.startswith("application/openmetrics-text")
        with self._lock:
            looks = self._views.targets
            known = self._made.get(openmetrics)
            # Looks are replaced as a whole.
            if known is None or [*map(id, known[0])] != [*map(id, looks)]:
                flows = render(samples(self._views), openmetrics=openmetrics)
                known = self._made[openmetrics] = (looks, flows)
        return known[1] + encode(self.process), content_type


def samples(views: Views) -> Iterator[Sample]:
    settings = views.config.service
    yield from service_samples(views.targets)
    for look in views.looks():
        groups = views.groups_of(look)
        yield from flow_samples(look, groups)
        if look.error:  # what an earlier look found does not describe the present
            continue
        if settings.prometheus_groups:
            yield from group_samples(look.flow, groups)
        if settings.prometheus_topics:
            yield from topic_samples(look, views.topics_of(look))
    yield from move_samples(views.move_looks().values())
    yield from drill_samples(drill for look in views.targets for drill in look.drills)


def render(samples: Iterable[Sample], *, openmetrics: bool) -> bytes:
    """Return the text of all samples by metric, in a third of prometheus_client's time."""
    lines: dict[str, list[str]] = {}
    known: dict[tuple[str, ...], dict[tuple[str, ...], str]] = {}
    labelled = {name: known.setdefault(metric.labels, {}) for name, metric in METRICS.items()}
    for name, labels, value in samples:
        shown = labelled[name]
        text = shown.get(labels)
        if text is None:
            pairs = zip(METRICS[name].labels, labels, strict=True)
            escaped = (f'{label}="{each.translate(_ESCAPES)}"' for label, each in pairs)
            text = shown[labels] = f"{{{','.join(escaped)}}}"
        lines.setdefault(name, []).append(f"{name}{text} {float(value)!r}\n")
    parts = (
        part
        for name, metric in METRICS.items()
        if name in lines
        for part in (*_head(metric, openmetrics=openmetrics), *lines[name])
    )
    return "".join(parts).encode()


def _head(metric: Metric, *, openmetrics: bool) -> Iterator[str]:
    name, kind = metric.name, "gauge"
    if openmetrics and metric.is_info:
        name, kind = name.removesuffix("_info"), "info"
    yield f"# HELP {name} {metric.meaning}\n# TYPE {name} {kind}\n"
    if openmetrics and metric.unit:
        yield f"# UNIT {name} {metric.unit}\n"


Labels = tuple[str, ...]
Sample = tuple[str, Labels, float]
"""Metric, values of its labels, value."""

_RUNNING: Final = (HELD | DECIDED) - {"reported"}


def service_samples(targets: Iterable[TargetLook]) -> Iterator[Sample]:
    yield "srm_service_info", (__version__,), 1
    for look in targets:
        yield "srm_target_look_timestamp_seconds", (look.alias,), look.looked_ms / 1000
        yield "srm_target_up", (look.alias,), bool(look.looked_ms and not look.error)


def flow_samples(look: FlowLook, groups: Collection[GroupRow]) -> Iterator[Sample]:
    flow, view = look.flow, look.view
    labels, row = (flow.source, flow.target), flow_rows.summary(look)
    yield from _summary(row, labels)
    yield from _window_samples("srm_flow", labels, row.lag, look)
    if view is None or look.error:
        return
    yield "srm_flow_source_up", labels, not view.status.source_error
    if view.status.heard_ms:
        yield "srm_flow_source_heard_timestamp_seconds", labels, view.status.heard_ms / 1000
    if row.lag_at_ms is None:
        yield "srm_flow_lag_offsets", labels, row.lag
    yield from _replicator(view.status, labels)
    yield from _states(view, labels)
    yield from _group_totals(groups, labels)
    if view.status.standing is not None and view.status.standing.proof is not None:
        proof = view.status.standing.proof
        yield from _samples_of(
            "srm_checkpoints",
            labels,
            proof_timestamp_seconds=proof.time_ms / 1000,
            proof_duration_seconds=proof.took_ms / 1000,
            sampled_groups=proof.sampled,
            proven_groups=proof.proven,
            disproved_partitions=len(proof.wrong_partitions),
            withheld=proof.withheld,
            unread_groups=len(proof.unread),
        )


def _summary(row: FlowSummary, labels: Labels) -> Iterator[Sample]:
    replicator = row.replicator
    name, host = (replicator.application_id, replicator.host) if replicator else ("", "")
    yield "srm_flow_info", (*labels, row.flow, name, host), 1
    yield from _count_samples("srm_flow_state", labels, STATES, Counter[str]([row.state]))
    yield "srm_flow_look_timestamp_seconds", labels, row.looked_ms / 1000
    yield "srm_flow_look_up", labels, bool(row.looked_ms and not row.error)
    if (found := row.forecast) is not None:
        yield from _samples_of(
            "srm_forecast",
            labels,
            lost_records=found.records_lost,
            lost_at_most_records=found.records_lost_at_most,
            lost_seconds=found.seconds_lost,
            read_again_records=found.records_read_again,
            unread_backlog_records=found.unread_backlog,
            unseen_groups=found.groups_unseen,
            unknown_partitions=len(found.unknown),
        )


def _replicator(status: FlowStatus, labels: Labels) -> Iterator[Sample]:
    driver = status.driver
    yield "srm_replicator_up", labels, driver is not None and driver.alive
    if driver is not None:
        beat_ms = status.time_ms - driver.age_ms
        yield "srm_replicator_heartbeat_timestamp_seconds", labels, beat_ms / 1000
    counts = Counter("true" if slot.alive else "false" for slot in status.slots)
    yield from _count_samples("srm_replicator_slots", labels, ("true", "false"), counts)


def _samples_of(first: str, labels: Labels, **values: float | None) -> Iterator[Sample]:
    """Yield the metrics whose values are known; ``first`` begins their names."""
    for name, value in values.items():
        if value is not None:
            yield f"{first}_{name}", labels, value


def _states(view: FlowState, labels: Labels) -> Iterator[Sample]:
    yield from _count_samples(
        "srm_flow_topics", labels, TOPIC_STATES, Counter(t.state for t in view.status.topics)
    )
    states = Counter[str]()
    lost = 0
    for partitions in view.partitions.values():
        for one in partitions:
            states[one.state] += 1
            lost += sum(note.lost for note in one.notes if not note.decision)
    yield from _count_samples("srm_flow_partitions", labels, PARTITION_STATES, states)
    yield "srm_flow_lost_offsets", labels, lost


def _group_totals(groups: Collection[GroupRow], labels: Labels) -> Iterator[Sample]:
    names = {True: "yes", False: "no", None: "unknown"}
    counts = Counter(names[group.can_go_on] for group in groups)
    yield from _count_samples("srm_flow_groups", labels, names.values(), counts)
    known = [group.checkpoint_ms for group in groups if group.checkpoint_ms is not None]
    if known:
        yield "srm_checkpoints_oldest_timestamp_seconds", labels, min(known) / 1000


def topic_samples(look: FlowLook, topics: Iterable[TopicRow]) -> Iterator[Sample]:
    for row in topics:
        labels = (look.flow.source, look.flow.target, row.topic)
        states = Counter[str]([row.state])
        yield from _count_samples("srm_topic_state", labels, TOPIC_HEALTH, states)
        if look.silent_since_ms is None:
            yield "srm_topic_lag_offsets", labels, row.lag
        yield "srm_topic_partitions", labels, row.partitions
        yield "srm_topic_copied_offsets", labels, row.copied
        yield from _window_samples("srm_topic", labels, row.lag, look)


def group_samples(flow: Flow, groups: Iterable[GroupRow]) -> Iterator[Sample]:
    for row in groups:
        labels = (flow.source, flow.target, row.group)
        known_ms = row.checkpoint_ms
        yield from _samples_of(
            "srm_group",
            labels,
            checkpoint_timestamp_seconds=None if known_ms is None else known_ms / 1000,
            checkpoint_partitions=row.partitions,
            read_again_records=row.records_read_again if row.by_commits else None,
            unread_backlog_records=0 if row.by_commits else row.records_read_again,
            skipped_records=row.records_skipped,
            can_go_on=row.can_go_on,
            proven=not row.proof,
            followers=row.followers,
        )


def _window_samples(first: str, labels: Labels, lag: int, look: FlowLook) -> Iterator[Sample]:
    """Yield the end of the newest window and its current rates; ``first`` begins their names."""
    topic = "".join(labels[2:])
    if (newest := look.measured.get(topic)) is None:
        return
    yield f"{first}_window_end_timestamp_seconds", labels, newest.end_ms / 1000
    if (window := look.now(topic)) is None or (now := _of_now(window, lag, look)) is None:
        return
    seconds = max(1, now.end_ms - now.start_ms) / 1000
    yield f"{first}_rate_records_per_second", labels, now.records / seconds
    rate = now.byte_rate
    for name, value in (("", rate.sum), ("_min", rate.min), ("_max", rate.max)):
        yield f"{first}_rate{name}_bytes_per_second", labels, value
    for kind, figures in (
        ("replication", now.replication_latency_ms),
        ("checkpoint", now.checkpoint_latency_ms),
    ):
        if figures.count:
            for name in ("min", "avg", "max"):
                latency_ms: float = getattr(figures, name)
                yield f"{first}_{kind}_latency_{name}_seconds", labels, latency_ms / 1000


def _of_now(window: Measured, lag: int, look: FlowLook) -> Measured | None:
    """Return the window, an empty one if its subject is idle, None if that is unknown.

    Idle: a newer window of the flow lacks it or, without fresh windows, the look found no lag.
    """
    newest = look.measured.get("") or window
    none = Statistics()
    nothing = Measured(window.start_ms, window.end_ms, 0, 0, none, none, none, none)
    if is_fresh(newest.end_ms, look.looked_ms):
        return nothing if window.end_ms <= newest.start_ms else window
    return None if lag else nothing


def move_samples(moves: Iterable[MoveLook]) -> Iterator[Sample]:
    running, held, last = Counter[Labels](), dict[Labels, int](), dict[Labels, MoveLook]()
    for look in moves:
        request, progress = look.plan.request, look.progress
        labels: Labels = (request.source, request.target, request.operation, request.mode)
        if progress.step in _RUNNING:
            running[*labels, progress.step] += 1
        if progress.step in HELD:
            held[labels] = min(_step_time(look, "holding"), held.get(labels, 1 << 62))
        if progress.step in ENDED and (
            labels not in last or _ended_ms(look) > _ended_ms(last[labels])
        ):
            last[labels] = look
    yield from (("srm_move_running", labels, count) for labels, count in running.items())
    for of, since_ms in held.items():
        yield "srm_move_hold_timestamp_seconds", of, since_ms / 1000
    for labels, look in last.items():
        yield "srm_move_last_end_timestamp_seconds", labels, _ended_ms(look) / 1000
        report = look.report.report if look.report else None
        yield "srm_move_last_ok", labels, report is not None and report.ok
        if report is not None:
            found = report.result
            yield from _samples_of(
                "srm_move_last",
                labels,
                rpo_records=report.rpo_records,
                rpo_at_most_records=report.rpo_at_most,
                rpo_seconds=report.rpo_seconds,
                rto_seconds=report.rto_seconds,
                outage_seconds=found.outage_seconds if found.outage_measured else None,
                groups_not_back=found.not_back,
                read_again_records=found.read_again.least,
                read_again_at_most_records=found.read_again.most,
                residue_records=report.residue_count,
            )
        if (held_s := look.progress.held_seconds) is not None:
            yield "srm_move_last_rto_seconds", labels, held_s


def _ended_ms(look: MoveLook) -> int:
    return _step_time(look, look.progress.step)


def _step_time(look: MoveLook, step: str) -> int:
    return look.progress.times_ms.get(step, look.plan.created_ms)


def drill_samples(drills: Iterable[Drill]) -> Iterator[Sample]:
    running, last = Counter[Labels](), dict[Labels, Drill]()
    for drill in drills:
        flow = Flow.parse(drill.flow)
        labels: Labels = (flow.source, flow.target)
        if drill.state == "running":
            running[labels] += 1
        elif labels not in last or drill.time_ms > last[labels].time_ms:
            last[labels] = drill
    for of in sorted(running.keys() | last.keys()):
        yield "srm_drill_running", of, running[of]
    for labels, drill in last.items():
        yield "srm_drill_last_timestamp_seconds", labels, drill.time_ms / 1000
        yield "srm_drill_last_ok", labels, drill.ok
        yield "srm_drill_last_rto_seconds", labels, drill.rto_seconds
        yield "srm_drill_last_groups", labels, len(drill.groups)
        yield "srm_drill_last_proven_groups", labels, drill.proven


def _count_samples(
    metric: str, labels: Labels, names: Iterable[str], counts: Counter[str]
) -> Iterator[Sample]:
    """Yield a count for each name, also 0: a missing series raises no alert."""
    for name in names:
        yield metric, (*labels, name), counts[name]


if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Observation
    from opentelemetry.sdk.metrics import MeterProvider

_FRESH_S: Final = 1.0
_SHUTDOWN_MS: Final = 2000


class ExportedMetrics:
    """Exports the metrics of :mod:`.metric_table` by OTLP, if enabled, under Prometheus' names."""

    def __init__(self, views: Views) -> None:
        self._views = views
        self._lock = threading.Lock()
        self._made_s = float("-inf")
        self._samples: dict[str, list[Sample]] = {}
        self._provider: MeterProvider | None = None

    def start(self) -> None:
        reader = telemetry.metric_reader()
        if reader is None:
            return
        from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415 -- only where wanted

        self._provider = MeterProvider([reader], telemetry.resource(), shutdown_on_exit=False)
        meter = self._provider.get_meter("srm")
        for metric in METRICS.values():
            unit = UNITS.get(metric.unit, "1")
            meter.create_observable_gauge(
                metric.name, [self._observing(metric)], unit, metric.meaning
            )

    def close(self) -> None:
        if self._provider is not None:
            self._provider.shutdown(_SHUTDOWN_MS)

    def _observing(self, metric: Metric) -> Callable[[CallbackOptions], Iterable[Observation]]:
        from opentelemetry.metrics import Observation  # noqa: PLC0415 -- only where wanted

        def observe(_: CallbackOptions) -> Iterable[Observation]:
            for _name, labels, value in self._fresh().get(metric.name, ()):
                yield Observation(float(value), dict(zip(metric.labels, labels, strict=True)))

        return observe

    def _fresh(self) -> dict[str, list[Sample]]:
        """Return samples by metric; all callbacks of one export share them."""
        with self._lock:
            if time.monotonic() - self._made_s > _FRESH_S:
                found: dict[str, list[Sample]] = {}
                for sample in samples(self._views):
                    found.setdefault(sample[0], []).append(sample)
                self._samples, self._made_s = found, time.monotonic()
            return self._samples
