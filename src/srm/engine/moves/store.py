"""Moves by id, as both clusters keep them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from srm.domain.flow_state.replication_records import Pause
from srm.domain.moves.disaster import OUTCOME_PREFIX, Outcome
from srm.domain.moves.line import MoveLine
from srm.domain.moves.plan import MovePlan
from srm.domain.moves.progress import Carrier, MoveProgress, WaitNote
from srm.domain.moves.report import Approval, approval_key, decode_approvals, join_approvals
from srm.domain.moves.revisions import KeptReport, newest, report_key
from srm.domain.names import internal_topics
from srm.domain.text.amount import utc
from srm.domain.text.documents import decode_or_none
from srm.engine.moves.context import MoveContext, read_both, without_source
from srm.engine.moves.tables import MoveRecords, accepted_key
from srm.engine.ports import FlowContext
from srm.errors import ConflictError, NotFoundError, UnavailableError


def write_note(context: MoveContext, note: WaitNote) -> None:
    """Write the note of a waiting process; not fenced, as its loss only delays."""
    context.target.compacted_topic(internal_topics.MOVES).write({note.key(): note.value()})


@dataclass(frozen=True)
class MoveStore:
    """Records of moves by move id: of those of both clusters the furthest, or newest, counts."""

    tables: Sequence[MoveRecords]
    where: str = ""
    missing: Sequence[UnavailableError] = ()
    status: str = "srm failover status"

    @classmethod
    def read(cls, context: MoveContext) -> Self:
        """Read both clusters; one of them may be unavailable."""
        where = f"{context.target.alias} or {context.source.alias}"
        found, missing = read_both(context, MoveRecords.read)
        known = missing if context.condemned is None else ()
        return cls(found, where, known, context.command("status"))

    def load(self, move_id: str) -> tuple[MovePlan, MoveProgress]:
        """Return the progress of a move, and its plan without the groups that it leaves out.

        ConflictError: the move has ended; only its line and its report are kept.
        """
        self.require_open(move_id)
        if (plan := self.plan(move_id)) is None:
            what = f"move {move_id!r} is not known on {self.where}"
            for error in self.missing:
                raise UnavailableError(f"{what}: {error.what}", error.action)
            raise NotFoundError(what, f"see '{self.status}', or plan it")
        progress = self.progress(move_id)
        return plan.without(progress.left_out), progress

    def require_open(self, move_id: str) -> None:
        """Raise a ConflictError if the move has ended, and none of its steps is left."""
        line = self.line(move_id)
        if line is None or not line.ended:
            return
        what = f"move {move_id} has ended: {line.progress.step} at {utc(line.newest_ms)}"
        action = "plan another one"
        if line.progress.is_decided:
            action = f"its report is kept: '{self.status.replace('status', 'report')} {move_id}'"
        raise ConflictError(what, action)

    def view(self, move_id: str) -> tuple[MovePlan, MoveProgress]:
        """Return plan and progress to show; of an ended move those that its report has."""
        line = self.line(move_id)
        if line is None or not line.ended:
            return self.load(move_id)
        kept = self.report(move_id)
        return line.outline(kept.report if kept else None)

    def line(self, move_id: str) -> MoveLine | None:
        lines = [table.lines[move_id] for table in self.tables if move_id in table.lines]
        return max(lines, key=lambda line: line.rank, default=None)

    def lines(self) -> tuple[MoveLine, ...]:
        """Return the lines of all known moves, the oldest plan first."""
        names = {move_id for table in self.tables for move_id in table.lines}
        found = filter(None, map(self.line, names))
        return tuple(sorted(found, key=lambda line: (line.created_ms, line.move_id)))

    def plan(self, move_id: str) -> MovePlan | None:
        """Return the plan of a move; None if it has none, or has ended."""
        if (line := self.line(move_id)) is None or line.ended:
            return None
        plans = (table.plans.get(move_id) for table in self.tables)
        return max(filter(None, plans), key=lambda plan: plan.created_ms, default=None)

    def plan_at_go(self, plan: MovePlan) -> MovePlan:
        """Return the plan with the rows and warnings that go accepted; as planned before that."""
        stored = self._documents(accepted_key(plan.move_id))
        found = filter(None, (decode_or_none(one, MovePlan.decode) for one in stored))
        return next((one for one in found if one.created_ms == plan.created_ms), plan)

    def progress(self, move_id: str) -> MoveProgress:
        """Return the progress of a move; one that was only planned is at its first step."""
        if (line := self.line(move_id)) is not None and line.ended:
            return line.progress
        known = [table.progress[move_id] for table in self.tables if move_id in table.progress]
        return max(known, key=lambda one: one.rank, default=MoveProgress(move_id))

    def carrier(self, move_id: str, now_ms: int) -> Carrier | None:
        """Return the process that carries a move; None if its notes are not known now."""
        notes = [table.notes[move_id] for table in self.tables if move_id in table.notes]
        last = max(notes, key=lambda note: note.time_ms, default=None)
        if last is None and self.missing:
            return None
        line = self.line(move_id)
        return (line.progress if line else MoveProgress(move_id)).last_carrier(last, now_ms)

    def report(self, move_id: str) -> KeptReport | None:
        values = self._documents(report_key(move_id))
        found = (decode_or_none(value, KeptReport.decode) for value in values)
        return newest(kept for kept in found if kept is not None)

    def outcome(self, move_id: str) -> Outcome | None:
        values = self._documents(f"{OUTCOME_PREFIX}{move_id}")
        found = [decode_or_none(value, Outcome.decode) for value in values]
        return max(filter(None, found), key=lambda outcome: outcome.time_ms, default=None)

    def approvals(self, move_id: str) -> tuple[Approval, ...]:
        """Return the approvals of a move, the oldest first; damaged ones are logged."""
        values = self._documents(approval_key(move_id))
        return join_approvals(*(decode_or_none(one, decode_approvals) or () for one in values))

    def _documents(self, key: str) -> list[bytes]:
        return [text for table in self.tables if (text := table.document(key)) is not None]


def undecided_moves(context: FlowContext, pause: Pause) -> Iterator[MoveProgress]:
    """Yield the known moves of a pause that the flow's target has not decided."""
    store = MoveStore.read(without_source(context))
    known = filter(None, map(store.line, pause.moves))
    return (line.progress for line in known if not line.progress.is_decided)


def abandoned_ms(context: FlowContext, pause: Pause) -> dict[str, int]:
    """Return when the moves of a pause abandoned each topic: those that joined it came later."""
    store = MoveStore.read(without_source(context))
    known = [move_id for move_id in reversed(pause.moves) if store.line(move_id)]
    return {
        topic: progress.times_ms.get("holding", pause.time_ms)
        for plan, progress in map(store.view, known)
        for topic in plan.topics
    }
