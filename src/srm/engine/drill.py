"""Drills: all steps of a failover except its routes, and removal of what a killed one has left.

Both moves are planned, with the source and without it; whatever would refuse either is a problem,
except a halted copy: it and the warnings of both plans are warnings of the drill.
Shadow groups get the positions of the move without the source, the ones that count if it is lost.
The real groups are only read. The drill records its shadow groups before it creates them, so that a
later run can remove them after a kill.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Final

from srm.domain.groups.proof import TranslationClaim, Verdict, differences
from srm.domain.groups.translation import PartitionFacts, Translation
from srm.domain.moves.disaster import (
    DRILL_KEY,
    DRILL_LEASE_MS,
    Drill,
    DrillGroup,
    Forecast,
    superfluous,
)
from srm.domain.moves.request import MoveRequest
from srm.domain.names import internal_topics
from srm.domain.names.topics import TopicPartition
from srm.domain.text.amount import excerpt, moment, problem
from srm.domain.text.documents import decode_or_none, document_of, join, split
from srm.domain.verification.compared_record import ComparedRecord
from srm.domain.verification.comparison import differing_fields
from srm.engine.cluster_ports import Cluster, GroupKind, Place
from srm.engine.control.control_topics import create_control_topics
from srm.engine.groups.group_sync import apply_exact
from srm.engine.groups.ledger import drop_entries
from srm.engine.groups.proving import Where, verdicts_of
from srm.engine.groups.translate import first_records
from srm.engine.moves.context import MoveContext, without_source
from srm.engine.moves.planning import HALTED, Findings, as_warning, look_around
from srm.engine.status.observing import read_forecast
from srm.errors import ConflictError, GroupActiveError, NotFoundError, SrmError

log = logging.getLogger(__name__)

_LEFT_S: Final = 60.0
"""Longer than the session of a member that was killed: 45 s by default in a KIP-848 group."""
_LOOK_S: Final = 0.25
RUNNING_HERE: Final[set[str]] = set()
"""Drills of this process."""


def read_drills(target: Cluster, flow: str | None = None) -> tuple[Drill, ...]:
    """Return the drills that a target has records of, of all flows or one, oldest first."""
    return tuple(one for one, _ in _list_drills(target) if flow in {None, one.flow})


def _list_drills(target: Cluster) -> list[tuple[Drill, int]]:
    rows = target.compacted_topic(internal_topics.MOVES).read_stamped()
    found = [
        (drill, rows[key].timestamp_ms)
        for key, text in join({key: row.value for key, row in rows.items()}).items()
        if key.startswith(DRILL_KEY)
        and (drill := decode_or_none(text, Drill.decode, f"{key.decode(errors='replace')}: "))
    ]
    return sorted(found, key=lambda item: (item[0].time_ms, item[0].drill_id))


def remove_leftovers(target: Cluster, now_ms: int) -> tuple[Drill, ...]:
    """Remove the leftovers of drills that no longer run; return the drills that do run."""
    alive: list[Drill] = []
    for drill, heard_ms in _list_drills(target):
        if drill.state == "running" and _is_alive(drill, now_ms - heard_ms):
            alive.append(drill)
        elif drill.state == "running":
            log.warning("drill %s was interrupted: its shadow groups are removed", drill.drill_id)
            _interrupt(target, drill, "it was killed; a later run removed its shadow groups")
    return tuple(alive)


def remove_shadows(target: Cluster, drill: Drill) -> None:
    """Delete the shadow groups of a drill and their ledger entries; safe to repeat."""
    prefix = drill.shadow_prefix
    if left := [name for name in target.groups() if name.startswith(prefix)]:
        _delete(target, left)
    drop_entries(target, lambda entry: entry.group.startswith(prefix))


def _interrupt(target: Cluster, drill: Drill, why: str) -> None:
    remove_shadows(target, drill)
    ended = replace(drill, state="interrupted", groups=(), problems=(why,))
    write_drill(target, ended, forget=(drill,))


def _delete(target: Cluster, groups: Collection[str]) -> None:
    """Delete groups, retrying while sessions of killed members have not timed out."""
    deadline, pause = time.monotonic() + _LEFT_S, threading.Event()
    while True:
        try:
            return target.delete_groups(groups)
        except GroupActiveError:
            if time.monotonic() >= deadline:
                raise
        pause.wait(_LOOK_S)


def write_drill(target: Cluster, drill: Drill, forget: Iterable[Drill] = ()) -> None:
    topic = target.compacted_topic(internal_topics.MOVES)
    names = {one.key() for one in forget}
    known = topic.read() if names else ()
    records = split(drill.key(), drill.value(), topic.read)
    gone = {key: None for key in known if document_of(key) in names and key not in records}
    topic.write({**records, **gone})


def _is_alive(drill: Drill, age_ms: int) -> bool:
    if drill.place and drill.place == place_of_processes():
        if drill.pid == os.getpid():
            return drill.drill_id in RUNNING_HERE
        try:
            os.kill(drill.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass  # it exists
    return age_ms < DRILL_LEASE_MS


@cache
def place_of_processes() -> str:
    """Name the kernel and the namespace in which process ids are unique, empty if unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:  # not Linux
        return ""


_AT_A_TIME: Final = 4  # members that read concurrently
_RENEW_S: Final = DRILL_LEASE_MS / 4000
_READ_S: Final = 25.0  # time limit of each, including the join

_MOST_TEXTS: Final = 200  # of a plan

_Records = Mapping[TopicPartition, ComparedRecord | None]
_At = Mapping[Place, ComparedRecord | None]


@dataclass(frozen=True)
class _Row:
    """One partition of one group: its position without the source, and the proof.

    ``has_place``: the target knows a position of the group, or the move is refused for all. Without
    one ``translation`` is that of the commit on the source.
    """

    upstream: TopicPartition
    facts: PartitionFacts
    translation: Translation
    verdict: Verdict | None
    has_place: bool

    @property
    def is_proven(self) -> bool:
        return self.verdict is not None and self.verdict.state == "proven"

    @property
    def proof_problem(self) -> str:
        found = self.translation
        if self.verdict is None:
            return f"{self.upstream} has no translation, {found.state}: {found.reason}"
        return "" if self.is_proven else f"{self.upstream}: {self.verdict.reason}"


_Rows = Mapping[str, tuple[_Row, ...]]
_Refused = Mapping[tuple[str, TopicPartition], str]
"""Reasons of offsets that were not written, by group and partition."""


def run_drill(
    context: MoveContext,
    topics: Collection[str] = (),
    groups: Collection[str] = (),
    show: Callable[[str], None] = lambda _step: None,
    *,
    exclude_groups: Collection[str] = (),
) -> Drill:
    """Rehearse a failover of groups, by default of all that it would move; store the result."""
    target, config, now_ms = context.target, context.forward.config, context.now_ms()
    flow = config.flow
    create_control_topics(target, config.internal_replication_factor, [internal_topics.MOVES])
    alive = [one for one in remove_leftovers(target, now_ms) if one.flow == str(flow)]
    if alive:
        raise ConflictError(
            f"drill {alive[0].drill_id} of {flow} runs on {alive[0].host} (process "
            f"{alive[0].pid}): wait for it or stop it"
        )
    drill_id = f"{moment(now_ms):%Y%m%dT%H%M%S}-{flow.source}-{flow.target}-{secrets.token_hex(2)}"
    host, pid, place = socket.gethostname(), os.getpid(), place_of_processes()
    new = Drill(drill_id, str(flow), "running", now_ms, host, pid, place=place)
    drill = _Drill(context, new, show)
    RUNNING_HERE.add(drill_id)
    try:
        return drill.run(
            MoveRequest(
                *("failover", flow.source, flow.target, tuple(topics), tuple(groups)),
                exclude_groups=tuple(exclude_groups),
            )
        )
    except (Exception, KeyboardInterrupt):
        drill.give_up()
        raise
    finally:
        RUNNING_HERE.discard(drill_id)


@dataclass
class _Drill:
    """A running drill; ``state`` is the content of its record."""

    context: MoveContext
    state: Drill
    show: Callable[[str], None]
    steps: dict[str, float] = field(default_factory=dict)
    forecast: Forecast | None = None
    kinds: Mapping[str, GroupKind] = field(default_factory=dict)
    _renew_at: float = 0.0

    def run(self, request: MoveRequest) -> Drill:
        context, flow = self.context, self.context.forward.config.flow
        with self._step("forecast"):
            self.forecast = read_forecast(context.forward).forecast
        with self._step("plan"):
            found = look_around(context, request, self.state.drill_id)
            unplanned = replace(request, mode="unplanned")
            try:
                lost = look_around(without_source(context.forward), unplanned, self.state.drill_id)
                of_loss = lost.found
            except NotFoundError as error:
                lost, of_loss = None, (problem("nothing-to-move", str(error)),)
            rows = _rows(context, found, lost)
            self.kinds = {one: found.facts.source.group(one).kind for one in rows}
        own = [as_warning(each) for each in found.found if each.id == HALTED]
        own += [each for each in found.found if each.id != HALTED]
        known = {(each.text, each.blocks) for each in own}
        own += [
            each.within(f"without {flow.source}")
            for each in of_loss
            if (each.text, each.blocks) not in known
        ]
        problems = [each.text for each in own if each.blocks]
        warnings = [each.text for each in own if not each.blocks]
        # From here on the next drill or emission knows the shadow groups to remove.
        self.state = replace(
            self.state,
            topics=found.facts.topics,
            problems=excerpt(problems, _MOST_TEXTS),
            warnings=excerpt(warnings, _MOST_TEXTS),
        )
        self._write()
        with self._step("apply"):
            refused = self._apply(rows)
        with self._step("read"):
            read = self._read(rows)
        with self._step("remove"):
            remove_shadows(context.target, self.state)
        self.steps.pop("remove")  # a failover has nothing to remove
        return self._finish(rows, refused, read)

    def give_up(self) -> None:
        try:
            if self._renew_at:
                _interrupt(self.context.target, self.state, "it was stopped before it finished")
        except SrmError as error:
            log.warning("drill %s has not removed its groups yet: %s", self.state.drill_id, error)

    def _apply(self, rows: _Rows) -> _Refused:
        prefix = self.state.shadow_prefix
        wanted = {prefix + group: _offsets(some) for group, some in rows.items()}
        decisions = apply_exact(
            self.context.forward,
            {shadow: offsets for shadow, offsets in wanted.items() if offsets},
            operation=f"drill {self.state.drill_id}",
        )
        return {
            (one.group.removeprefix(prefix), one.partition): f"{one.action}, {one.reason}"
            for one in decisions
            if not one.in_place
        }

    def _read(self, rows: _Rows) -> dict[str, _Records | str]:
        """Read as a member of each shadow group; return the records, or the error, by group."""
        found: dict[str, _Records | str] = {}
        starts = {group: offsets for group, some in rows.items() if (offsets := _offsets(some))}
        target, kinds = self.context.target, self.kinds
        names = list(starts)

        def read(group: str) -> _Records | str:
            shadow = self.state.shadow_prefix + group
            try:
                return target.read_as_member(shadow, starts[group].keys(), _READ_S, kinds[group])
            except SrmError as error:
                return str(error)

        with ThreadPoolExecutor(_AT_A_TIME, thread_name_prefix="srm-drill") as pool:
            for at in range(0, len(names), _AT_A_TIME):
                some = names[at : at + _AT_A_TIME]
                self.show(f"reading as {', '.join(some)} ({at + len(some):,} of {len(names):,})")
                if time.monotonic() > self._renew_at:
                    self._renew()
                found |= dict(zip(some, pool.map(read, some), strict=True))
        return found

    def _finish(self, rows: _Rows, refused: _Refused, read: Mapping[str, _Records | str]) -> Drill:
        compare, target = _Comparison.of(self.context, rows), self.context.target
        groups = [
            _group(group, some, refused, read.get(group, {}), compare)
            for group, some in sorted(rows.items())
        ]
        found = replace(self.state, steps=self.steps, groups=tuple(groups), forecast=self.forecast)
        done = replace(found, state="done")
        before = [one for one in read_drills(target) if one.drill_id != done.drill_id]
        write_drill(target, done, forget=superfluous([*before, done], done.flow))
        return done

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        self.show(name)
        self._renew()
        began = time.monotonic()
        yield
        self.steps[name] = round(time.monotonic() - began, 3)

    def _renew(self) -> None:
        if not self._renew_at:
            return
        states = {one.drill_id: one.state for one in read_drills(self.context.target)}
        if states.get(self.state.drill_id) != "running":
            raise ConflictError(
                f"drill {self.state.drill_id} missed its heartbeats and another run has removed "
                "its groups; run it again"
            )
        self.state = replace(self.state, beat=self.state.beat + 1)
        self._write()

    def _write(self) -> None:
        self._renew_at = time.monotonic() + _RENEW_S
        write_drill(self.context.target, self.state)


def _rows(context: MoveContext, found: Findings, lost: Findings | None) -> _Rows:
    """Return the positions of all groups: unplanned if by a source offset, else planned."""
    plans = lost.facts.plans if lost is not None else ()
    places = {(plan.group, each.target): each for plan in plans for each in plan.positions}
    rows, claims = dict[str, list[_Row]](), dict[Where, TranslationClaim]()
    for group in found.facts.groups:
        rows[group] = []
        for upstream, facts, translation in found.facts.translations(group):
            where, last = (group, upstream), places.get((group, facts.downstream))
            resume, at = None if last is None else last.resume, translation
            reached = last.committed if last is not None and last.state == "translated" else None
            if resume is not None and reached is not None:
                claims[where] = TranslationClaim(facts, reached, resume)
                at = Translation("translated", resume, reached)
            rows[group].append(_Row(upstream, facts, at, None, resume is not None or not plans))
    verdicts = {**found.verdicts, **verdicts_of(context.forward, claims)}
    return {
        group: tuple(replace(row, verdict=verdicts.get((group, row.upstream))) for row in some)
        for group, some in rows.items()
    }


def _offsets(rows: Collection[_Row]) -> dict[TopicPartition, int]:
    """Return the offsets at which a shadow group starts; at the copy's end if it is not so far."""
    found = ((row.facts.downstream, row.translation.offset) for row in rows)
    return {place: offset for place, offset in found if offset is not None}


@dataclass(frozen=True)
class _Comparison:
    """Expected next records of groups on both sides, to compare with those that members read."""

    source: _At
    target: _At

    @classmethod
    def of(cls, context: MoveContext, rows: _Rows) -> _Comparison:
        source, target = set(), set()
        for row in (row for some in rows.values() for row in some):
            offset, reached = row.translation.offset, row.translation.reached
            if offset is not None and reached is not None:
                source.add((row.upstream, reached))
                target.add((row.facts.downstream, offset))
        committed = context.forward.config.isolation_level == "read_committed"
        return cls(
            first_records(context.source, source, "records", committed=committed),
            first_records(context.target, target, "records"),
        )

    def problem(self, row: _Row, read: ComparedRecord | None) -> str:
        """Return how the record read differs from the group's next one on the source, or ""."""
        downstream, offset = row.facts.downstream, row.translation.offset
        expected = self.source.get((row.upstream, row.translation.reached or 0))
        there = self.target.get((downstream, offset or 0))
        if read is None or expected is None:
            if row.is_proven and (read is None or there is None or read.offset >= (offset or 0)):
                return ""  # one of the logs ends there
            what = "no record" if read is None else f"a record at {read.offset}"
            return f"{downstream}: the member read {what}, unexpectedly"
        forward = row.facts.direction == "forward"
        fields = differences(*((expected, read) if forward else (read, expected)))
        # Compaction or retention may have removed records before it; the proof has the pair.
        is_pair = row.is_proven and there is not None and there.offset == read.offset
        if not fields or (is_pair and there is not None and not differing_fields(there, read)):
            return ""
        return (
            f"{downstream}: the member read another record at {read.offset} than the group's "
            f"next one at {expected.offset} of {row.upstream}: {', '.join(fields)} differ"
        )


def _group(
    group: str,
    rows: Collection[_Row],
    refused: _Refused,
    read: _Records | str,
    compare: _Comparison,
) -> DrillGroup:
    problems: list[str] = []
    proven = matching = 0
    if isinstance(read, str):
        problems.append(f"no member could join: {read}")
        read = {}
    for row in rows:
        why, place = row.proof_problem, row.facts.downstream
        proven += not why
        if row.translation.offset is None:
            pass
        elif (group, place) in refused:
            why = f"{place}: its offset was not written: {refused[group, place]}"
        elif place not in read:
            why = why or f"{place}: the member read nothing within {_READ_S:.0f} s"
        else:
            wrong = compare.problem(row, read[place])
            matching += not wrong
            why = why or wrong
        if why:
            problems.append(why)
        if not row.has_place:
            problems.append(
                f"{row.upstream} has no checkpoint on the target: without its source the group "
                f"starts there as auto.offset.reset says"
            )
    return DrillGroup(group, len(rows), proven, matching, excerpt(problems, 5))
