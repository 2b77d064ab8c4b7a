"""Checkpoints and group offset sync by the driver in charge: all at intervals, new commits at once.

New commits are read from the source's ``__consumer_offsets``. Translation, checkpoints and sync run
for these groups alone, so the cost follows commits. What the copy has not reached is tried again,
ever more rarely. Without the right to read that topic, commits wait for the interval.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from threading import Event
from typing import Final, Protocol

from srm import telemetry
from srm.config.model import FlowConfig
from srm.domain.flow_state.replication_records import COMMITS
from srm.domain.groups.checkpoints import CheckpointOutcome
from srm.domain.groups.offset_commits import TOPIC, NewCommits
from srm.domain.groups.translation import UNREACHED
from srm.domain.names.topics import TopicPartition
from srm.engine import emission
from srm.engine.control.recorded_copies import settings_now
from srm.engine.groups import checkpoints, group_sync
from srm.engine.groups.checkpoints import selection_of, survey
from srm.engine.groups.proving import ProofShare
from srm.engine.ports import FlowContext
from srm.errors import AuthorizationError
from srm.replication.driver.driver import FlowDriver
from srm.replication.driver.duties import IDLE_S, keep

logger = logging.getLogger(__name__)

_POLL_S: Final = 0.5
_PASS_S: Final = 0.5
_SHARE: Final = 0.05  # of a core: a pass describes all topics, however few commits are new
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
        ...


OpenCommits = Callable[[Mapping[TopicPartition, int]], AbstractContextManager[CommitLog]]
"""Opens the records from an offset of each partition on."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """When a commit was read, when it is due, and the id of its topic if the record has it."""

    at: float
    due: float
    topic_id: str = ""

    def again(self, now: float) -> _Seen:
        """Return it after a try in vain."""
        return replace(self, due=now + max(_PASS_S, (now - self.at) * _AGE_SHARE))


@dataclass(eq=False)
class GroupDuty:
    """Checkpoints and group offset sync of one flow, as far as ``duties`` name them."""

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
        """Use other settings from the next step on, for all groups."""
        self.context = replace(self.context, config=configured)
        self._settings_at = self._emit_at = self._sync_at = _NEVER

    def keep(self, stop: Event) -> None:
        """Do both until ``stop``."""
        try:
            keep(self.driver, "checkpoints and group offsets", self.step, stop)
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
        """Read lists and recorded copies, and begin to follow commits where that is possible."""
        if now >= self._settings_at:
            one = self.context
            settings = settings_now(one.config, one.source, one.target)
            self._settings_at = now + _SETTINGS_S
            if settings != self._settings:
                self._settings, self._emit_at, self._sync_at = settings, _NEVER, _NEVER
        if self._commits is None and now >= self._open_at:
            source = self.context.source
            rights = source.topic_rights([TOPIC], "consumer").get(TOPIC)
            self._open_at = now + (IDLE_S if rights is None else _REFUSED_S)
            if rights is not None and "Read" in rights:
                self._follow()
            elif rights is not None:
                self._refuse(f"grant Read on topic {TOPIC} of {source.alias} to srm's principal")

    def _follow(self) -> None:
        source = self.context.source
        count = source.partition_counts().get(TOPIC, 0)
        ends = source.log_ends([TopicPartition(TOPIC, number) for number in range(count)])
        self._commits = self._opened.enter_context(self.open_commits(ends))
        self.driver.duties |= {COMMITS}
        self._new, self._refusal = NewCommits(), ""
        self._emit_at = self._sync_at = _NEVER  # commits before these ends

    def _refuse(self, why: str) -> None:
        config = self.context.config
        if why != self._refusal:
            logger.warning(
                "%s: commits on %s are carried over every %.0f s, not as they come: %s",
                *(config.flow, config.flow.source),
                *(config.emit_checkpoints_interval.total_seconds(), why),
            )
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
        """When the next new commit may be carried over."""
        due = min((seen.due for seen in self._changed.values()), default=float("inf"))
        return max(self._rest_until, due)

    def _due_s(self, now: float) -> float:
        """Return the seconds until all groups are due."""
        due = [at for at, on in ((self._emit_at, self._emits), (self._sync_at, self._syncs)) if on]
        return min(due) - now

    def _all(self, context: FlowContext, now: float) -> None:
        config = context.config
        every_s = config.emit_checkpoints_interval.total_seconds()
        sync_every = config.sync_group_offsets_interval
        if self._emits and now >= self._emit_at:
            with telemetry.span("checkpoints.emit", flow=str(config.flow)) as span:
                span.result(emitted := emission.emit(context))
            self._warn(emitted.errors)
            self._wrong = frozenset() if emitted.proof is None else emitted.proof.wrong_partitions
            self._emit_at = now + every_s
            for key in _waiting_commits(emitted.outcomes):
                self._changed.setdefault(key, _Seen(now, now + _PASS_S))
            self._sync_at = now if sync_every is None else self._sync_at
        if self._syncs and now >= self._sync_at:
            with telemetry.span("groups.sync", flow=str(config.flow)) as span:
                span.result(synced := group_sync.sync(context))
            self._warn(synced.errors)
            self._sync_at = now + (every_s if sync_every is None else sync_every.total_seconds())

    def _some(self, context: FlowContext, now: float) -> None:
        """Carry over new commits."""
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
            outcomes = tuple(one for one in found.outcomes if self._is_current(one))
            found = replace(found, outcomes=outcomes)
            if self._emits:
                checkpoints.emit(context, changed, found=found, share=_UNPROVEN)
            if self._syncs:
                group_sync.sync(context, changed, found=found)
        waiting = _waiting_commits(outcomes)
        self._changed = {
            key: seen.again(now) if key in due else seen
            for key, seen in self._changed.items()
            if key in waiting or key not in due
        }
        spent_s = time.thread_time() - spent_s
        self._rest_until = self.clock() + max(_PASS_S, spent_s / _SHARE)

    def _is_current(self, outcome: CheckpointOutcome) -> bool:
        """Return False for a commit in a former topic of this name."""
        seen = self._changed[outcome.group, outcome.upstream]
        return seen.topic_id in {"", outcome.topic_ids.source}

    def _warn(self, unread: Mapping[str, str]) -> None:
        for group, reason in unread.items():
            if self._unread.get(group) != reason:
                logger.warning("%s: group %s: %s", self.context.config.flow, group, reason)
        self._unread = unread


def _waiting_commits(outcomes: Iterable[CheckpointOutcome]) -> set[tuple[str, TopicPartition]]:
    return {(one.group, one.upstream) for one in outcomes if one.state in UNREACHED}
