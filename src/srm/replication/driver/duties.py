"""Duties of the driver in charge besides the copy: groups, topics, heartbeats, metrics windows."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from functools import cache, partial
from threading import Event
from typing import Final, Protocol

from srm import telemetry
from srm.config.model import Config, FlowConfig
from srm.domain.flow_state.replication_records import CARRYING, COMMITS
from srm.domain.groups.checkpoints import CheckpointOutcome
from srm.domain.groups.mm2_records import Heartbeat, NewCommits
from srm.domain.groups.translation import UNREACHED
from srm.domain.names import internal_topics
from srm.domain.names.internal_topics import CONSUMER_OFFSETS
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.text.amount import grant
from srm.engine import emission
from srm.engine.cluster_ports import Cluster
from srm.engine.control import topic_sync
from srm.engine.control.control_topics import compacted_spec, ensure_compacted
from srm.engine.control.recorded_copies import settings_now
from srm.engine.groups import checkpoints, group_sync
from srm.engine.groups.checkpoints import Look, selection_of, survey
from srm.engine.groups.proving import ProofShare
from srm.engine.metrics.metrics import KeptWindows, WindowSpec, store
from srm.engine.ports import FlowContext
from srm.errors import AuthorizationError, SrmError
from srm.logs import Troubles
from srm.replication.driver.driver import Backoff, FlowDriver

logger = logging.getLogger(__name__)

IDLE_S: Final = 1.0
"""Pause of a duty that is switched off, or of a driver that is not in charge."""


def keep(driver: FlowDriver, what: str, step: Callable[[], float], stop: Event) -> None:
    """Repeat a step until ``stop`` while the driver is in charge, after the seconds it returns."""
    backoff, troubles = Backoff(), driver.progress.duty_troubles
    while not stop.is_set():
        tried, wait_s = time.monotonic(), IDLE_S
        if driver.is_in_charge:
            try:
                wait_s = step()
                troubles.end(what)
                backoff = Backoff()
            except Exception as error:  # noqa: BLE001 -- it is reported, and tried again
                troubles.report(what, error)
                wait_s = backoff.after(time.monotonic() - tried)
        stop.wait(max(0.0, wait_s))


def keep_topics(driver: FlowDriver, current: Callable[[], FlowContext], stop: Event) -> None:
    """Keep remote topics and their ACLs like their sources, at the shorter of both intervals.

    Until then only topics that failed are compared again.
    """
    todo, compare_at = set[str](), _NEVER

    def step() -> float:
        nonlocal compare_at
        context = current()
        settings = settings_now(context.config, context.source, context.target)
        context = replace(context, config=settings)
        if (now := time.monotonic()) >= compare_at:
            every = min(settings.sync_topic_configs_interval, settings.sync_topic_acls_interval)
            compare_at = now + every.total_seconds()
            todo.clear()
        with telemetry.span("topics.sync", flow=str(settings.flow)) as span:
            span.result(topic_sync.sync(context, todo=todo))
        return compare_at - now

    keep(driver, "topic sync", step, stop)


_POLL_S: Final = 0.5
_PASS_S: Final = 0.5
_SHARE: Final = 0.05  # of a core: a pass describes all topics, however few commits are new
_FEW: Final = 25
"""Groups that a pass carries over in this share; with more of them it may cost as much more."""
_AGE_SHARE: Final = 0.25
"""Pause between two tries, as a part of the time since the first."""
_SETTINGS_S: Final = 2.0
_REFUSED_S: Final = 10.0
_NEVER: Final = float("-inf")
_UNPROVEN: Final = ProofShare(0)
"""An emission at its interval proves a sample; partitions with a wrong checkpoint wait for it."""


class CommitLog(Protocol):
    """New records of ``__consumer_offsets``; see :mod:`srm.kafka.tables.topic_tail`."""

    def poll(self, timeout_s: float) -> list[tuple[bytes, bytes | None]]:
        """Return new keys and values, waiting so long for the first."""


OpenCommits = Callable[[Mapping[TopicPartition, int]], AbstractContextManager[CommitLog]]


@dataclass(frozen=True, slots=True)
class _Seen:
    at: float
    due: float
    topic_id: str = ""


@dataclass(eq=False)
class GroupDuty:
    """Checkpoints and group offset sync, as far as ``duties`` name them: new commits at once.

    They are read from the source's ``__consumer_offsets``, and the cost follows them. What the copy
    has not reached is tried again, ever more rarely. Without the right to read, the interval
    decides.
    """

    driver: FlowDriver
    context: FlowContext
    open_commits: OpenCommits
    clock: Callable[[], float] = time.monotonic
    _opened: ExitStack = field(default_factory=ExitStack)
    _commits: CommitLog | None = None
    _new: NewCommits = field(default_factory=NewCommits)
    _changed: dict[tuple[str, TopicPartition], _Seen] = field(default_factory=dict)
    _wrong: frozenset[str] = field(default_factory=frozenset)
    _refusal: str = ""
    _unread: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._settings = self.context.config
        self._settings_at = self._emit_at = self._sync_at = self._open_at = _NEVER
        self._rest_until = _NEVER

    def take(self, configured: FlowConfig) -> None:
        self.context = replace(self.context, config=configured)
        self._settings_at = self._emit_at = self._sync_at = _NEVER

    def keep(self, stop: Event) -> None:
        try:
            keep(self.driver, CARRYING, self.step, stop)
        finally:
            self._close()

    def step(self) -> float:
        """Do what is due; return the seconds until something may be due again."""
        try:
            return self._step()
        except Exception:
            self._close()  # what it has read since is lost: the next one begins with all groups
            raise

    @property
    def _emits(self) -> bool:
        return self.context.config.emit_checkpoints_enabled and "checkpoints" in self.driver.duties

    @property
    def _syncs(self) -> bool:
        config = self.context.config
        return config.sync_group_offsets_enabled and "group-offsets" in self.driver.duties

    def _step(self) -> float:
        if not (self._emits or self._syncs):
            self._close()
            return IDLE_S
        now = self.clock()
        self._look(now)
        context = replace(self.context, config=self._settings)
        if self._due_s(now) <= 0:
            self._all(context, now)
        elif now >= self._some_at:
            self._some(context, now)
        if self._commits is None:
            return min(self._due_s(self.clock()), IDLE_S)
        self._poll(self._commits)
        return 0.0

    def _look(self, now: float) -> None:
        if now >= self._settings_at:
            one = self.context
            settings = settings_now(one.config, one.source, one.target)
            self._settings_at = now + _SETTINGS_S
            if settings != self._settings:
                self._settings, self._emit_at, self._sync_at = settings, _NEVER, _NEVER
        if self._commits is None and now >= self._open_at:
            source = self.context.source
            rights = source.topic_rights([CONSUMER_OFFSETS], "consumer").get(CONSUMER_OFFSETS)
            self._open_at = now + (IDLE_S if rights is None else _REFUSED_S)
            if rights is not None and "Read" in rights:
                self._follow()
            elif rights is not None:
                self._refuse(grant("Read", CONSUMER_OFFSETS, source.alias))

    def _follow(self) -> None:
        source = self.context.source
        count = source.partition_counts().get(CONSUMER_OFFSETS, 0)
        ends = source.log_ends([TopicPartition(CONSUMER_OFFSETS, n) for n in range(count)])
        self._commits = self._opened.enter_context(self.open_commits(ends))
        self.driver.duties |= {COMMITS}
        self._new, self._refusal = NewCommits(), ""
        self._emit_at = self._sync_at = _NEVER  # commits before these ends

    def _refuse(self, why: str) -> None:
        config = self.context.config
        if why != self._refusal:
            every_s = config.emit_checkpoints_interval.total_seconds()
            text = "%s: commits on %s are translated every %.0f s, not at once: %s"
            logger.warning(text, config.flow, config.flow.source, every_s, why)
        self._refusal = why
        self._close()

    def _close(self) -> None:
        self.driver.duties -= {COMMITS}
        self._commits = None
        self._opened.close()

    def _poll(self, commits: CommitLog) -> None:
        now = self.clock()
        next_s = min(self._due_s(now), self._some_at - now)
        try:
            found = commits.poll(min(max(0.0, next_s), _POLL_S))
        except AuthorizationError as error:
            self._refuse(str(error))
            return
        now = self.clock()
        for key, value in found:
            commit = self._new.take(key, value)
            if commit is not None:
                self._changed[commit.group, commit.partition] = _Seen(now, now, commit.topic_id)

    @property
    def _some_at(self) -> float:
        due = min((seen.due for seen in self._changed.values()), default=float("inf"))
        return max(self._rest_until, due)

    def _due_s(self, now: float) -> float:
        due = [at for at, on in ((self._emit_at, self._emits), (self._sync_at, self._syncs)) if on]
        return min(due) - now

    def _all(self, context: FlowContext, now: float) -> None:
        config = context.config
        every_s = config.emit_checkpoints_interval.total_seconds()
        sync_every = config.sync_group_offsets_interval
        look: Look | None = cache(partial(survey, context, remember=True))
        unread: dict[str, str] = {}
        if self._emits and now >= self._emit_at:
            with telemetry.span("checkpoints.emit", flow=str(config.flow)) as span:
                span.result(emitted := emission.emit(context, look=look))
            unread |= emitted.errors
            if (proof := emitted.proof) is not None and proof.withheld:
                look = None  # perhaps a log was truncated since
            self._wrong = frozenset() if proof is None else proof.wrong_partitions
            self._emit_at = now + every_s
            for key in _waiting_commits(emitted.outcomes):
                self._changed.setdefault(key, _Seen(now, now + _PASS_S))
            self._sync_at = now if sync_every is None else self._sync_at
        if self._syncs and now >= self._sync_at:
            with telemetry.span("groups.sync", flow=str(config.flow)) as span:
                span.result(synced := group_sync.sync(context, look=look))
            unread |= synced.errors
            self._sync_at = now + (every_s if sync_every is None else sync_every.total_seconds())
        for group, reason in unread.items():
            if self._unread.get(group) != reason:
                logger.warning("%s: group %s: %s", config.flow, group, reason)
        self._unread = unread

    def _some(self, context: FlowContext, now: float) -> None:
        spent_s, selection = time.thread_time(), selection_of(context.config)
        changed = defaultdict[str, set[TopicPartition]](set)
        due = {key for key, seen in self._changed.items() if now >= seen.due}
        for group, place in due:
            is_selected = selection.direction(place.topic) is not None
            if is_selected and selection.groups.matches(group) and str(place) not in self._wrong:
                changed[group].add(place)
        outcomes: tuple[CheckpointOutcome, ...] = ()
        if changed:
            found = survey(context, changed)
            outcomes = tuple(
                one
                for one in found.outcomes
                if self._changed[one.group, one.upstream].topic_id in {"", one.topic_ids.source}
            )
            look = partial(replace, found, outcomes=outcomes)
            if self._emits:
                checkpoints.emit(context, changed, look=look, share=_UNPROVEN)
            if self._syncs:
                group_sync.sync(context, changed, look=look)
        waiting = _waiting_commits(outcomes)
        self._changed = {
            key: replace(seen, due=now + max(_PASS_S, (now - seen.at) * _AGE_SHARE))
            if key in due
            else seen
            for key, seen in self._changed.items()
            if key in waiting or key not in due
        }
        spent_s = time.thread_time() - spent_s
        share = _SHARE * max(1.0, len(changed) / _FEW)
        self._rest_until = self.clock() + max(_PASS_S, spent_s / share)


def _waiting_commits(outcomes: Iterable[CheckpointOutcome]) -> set[tuple[str, TopicPartition]]:
    # Without a target: the topic or partition is new, and its copy not created yet.
    waiting = {*UNREACHED, "no-target"}
    return {(one.group, one.upstream) for one in outcomes if one.state in waiting}


_LONG_REFUSED_S: Final = 60.0
_HEARTBEATS: Final = "writing heartbeats (unless emit.heartbeats.enabled = false)"


def disabled_flows(config: Config, flows: Collection[Flow]) -> Mapping[str, list[FlowConfig]]:
    copied = [flow for flow in flows if flow.source in config.clusters]
    ends = {alias for flow in copied for alias in (flow.source, flow.target)}
    found = defaultdict[str, list[FlowConfig]](list)
    for flow, settings in config.flow_configs.items():
        if flow.target in ends and not settings.enabled and settings.emit_heartbeats_enabled:
            found[flow.target].append(settings)
    return found


def emit_heartbeats(
    target: Cluster, flows: Collection[FlowConfig], now_ms: Callable[[], int], stop: Event
) -> None:
    """Write MM2 heartbeats until ``stop``, at the shortest interval, into a topic made if absent.

    They are outside transactions: markers would be gaps for the opposite flow.
    """
    beating = [settings for settings in flows if settings.emit_heartbeats_enabled]
    if not beating:
        return
    troubles = Troubles(", ".join(str(settings.flow) for settings in beating))
    interval_s = min(one.emit_heartbeats_interval.total_seconds() for one in beating)
    topic, exists = target.compacted_topic(internal_topics.HEARTBEATS), False
    while not stop.is_set():
        wait_s = interval_s
        try:
            if not exists and internal_topics.HEARTBEATS not in target.partition_counts():
                factor = beating[0].heartbeats_replication_factor
                target.create_topics([compacted_spec(internal_topics.HEARTBEATS, factor)])
            beats = [Heartbeat(settings.flow, now_ms()) for settings in beating]
            topic.write({beat.key(): beat.value() for beat in beats})
            exists = True
            troubles.end(_HEARTBEATS)
        except SrmError as error:
            troubles.report(_HEARTBEATS, error)
            exists = False
            if isinstance(error, AuthorizationError):
                wait_s = max(interval_s, _LONG_REFUSED_S)
        stop.wait(wait_s)


RETRY_S: Final = 5.0
_LATE_MS: Final = 2_000
"""Slots write a little later than once in an interval: a window waits, or it is written twice."""
_COMPARISONS: Final = 2
"""Full comparisons of stored windows in each look-back: lost ones return, unused ones go."""


class RawLog(CommitLog, Protocol):
    """Raw records from a time on; see :class:`srm.kafka.tables.topic_tail.KafkaTopicTail`."""

    @property
    def caught_up(self) -> bool:
        """True once all records present at the first look were returned."""

    @property
    def rewound(self) -> bool:
        """True if records were returned again."""


OpenLog = Callable[[int], AbstractContextManager[RawLog]]


def keep_windows(
    context: FlowContext,
    open_log: OpenLog,
    stop: Event,
    spec: WindowSpec | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Write metrics windows as they end, until ``stop``; log failures once and wait.

    Each run begins with the raw records of the look-back, and writes what is not stored so already.
    It begins again where the wall clock was set: while that was ahead, it has forgotten what is
    needed.
    """
    if not context.config.metrics_windows_continuous:
        return
    troubles, what = Troubles(str(context.config.flow)), "aggregation of metrics windows"
    while not stop.is_set():
        keeper = _Keeper(context, spec or WindowSpec(), clock)
        try:
            with open_log(keeper.since_ms) as log:
                keeper.catch_up(log, stop)
                while not log.rewound:
                    troubles.end(what)
                    if stop.wait(keeper.until_next_slide_s()):
                        return
                    if keeper.clock_was_set:
                        break
                    keeper.slide(log)
        except Exception as error:  # noqa: BLE001 -- or there would be none until a restart
            troubles.report(what, error)
            stop.wait(RETRY_S)


@dataclass(eq=False)
class _Keeper:
    context: FlowContext
    spec: WindowSpec
    clock: Callable[[], float]
    _compare_at: float = 0.0
    _has_topic: bool = False

    def __post_init__(self) -> None:
        self._windows = KeptWindows(self.context.config, self.spec)
        self._began_ms = self._wall_ms()
        self.since_ms = self._windows.bounds(self._now_ms()).first_start_ms

    @property
    def clock_was_set(self) -> bool:
        return abs(self._wall_ms() - self._began_ms) > self.spec.slide_ms

    def catch_up(self, log: RawLog, stop: Event) -> None:
        while not log.caught_up and not stop.is_set():
            self._add(log, 1.0)
        if not stop.is_set():
            self._compare()

    def until_next_slide_s(self) -> float:
        last_end_ms = self._windows.bounds(self._now_ms()).last_end_ms
        return (self.spec.slide_ms - last_end_ms % self.spec.slide_ms) / 1000

    def slide(self, log: RawLog) -> None:
        while self._add(log, 0.0):
            pass
        found = self._windows.take(self._now_ms())
        if self.clock() >= self._compare_at:
            self._compare()
        elif found:
            self._ensure_topic()
            table = self.context.target.compacted_topic(internal_topics.METRICS_WINDOWS)
            table.write({window.key(): window.value() for window in found})

    def _wall_ms(self) -> float:
        return self.context.now_ms() - self.clock() * 1000

    def _now_ms(self) -> int:
        return self.context.now_ms() - _LATE_MS

    def _add(self, log: RawLog, timeout_s: float) -> bool:
        found = log.poll(timeout_s)
        self._windows.add((value for _, value in found if value), self._now_ms())
        return bool(found)

    def _compare(self) -> None:
        now_ms = self._now_ms()
        self._windows.take(now_ms)
        found = self._windows.all(self._windows.bounds(now_ms))
        if found:
            self._ensure_topic()
        flow, keeping = self.context.config.flow, self.spec.keeping(now_ms)
        written, expired = store(self.context.target, flow, found, keeping)
        self._compare_at = self.clock() + self.spec.look_back_ms / _COMPARISONS / 1000
        logger.debug("%s: %d windows written, %d removed", flow, written, expired)

    def _ensure_topic(self) -> None:
        if self._has_topic:
            return
        target, factor = self.context.target, self.context.config.internal_replication_factor
        ensure_compacted(target, internal_topics.METRICS_WINDOWS, replication_factor=factor)
        self._has_topic = True
