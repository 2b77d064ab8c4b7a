"""Approvals of a move, with the numbers that the approver saw."""

from __future__ import annotations

from collections.abc import Iterable

from srm.domain.moves.gate.approval import (
    Approval,
    approval_key,
    decode_approvals,
    encode_approvals,
    join_approvals,
)
from srm.engine.moves.control.control import ControlChange, ControlTables, decode_or_none
from srm.engine.moves.control.move_records import MoveContext
from srm.engine.moves.control.registers import SIDES, Registers
from srm.errors import NotFoundError


def approve(context: MoveContext, move_id: str, approval: Approval) -> tuple[Approval, ...]:
    """Store an approval with the plan that it approves; the report of the move names it.

    Call it after the plan is stored and before the move holds clients. Repeated with the same
    approval it changes nothing. An unavailable source gets it later.

    Returns:
        All approvals of the move, the oldest first.
    """
    with Registers(context) as registers:

        def write() -> tuple[Approval, ...]:
            registers.require("target")
            if registers.plan(move_id) is None:
                raise NotFoundError(f"move {move_id!r} is not known: plan it, then approve it")
            tables = [registers.tables(side) for side in SIDES]
            known = join_approvals(approvals_in(tables, move_id), (approval,))
            change = ControlChange(documents={approval_key(move_id): encode_approvals(known)})
            registers.write("target", change)
            registers.write_if_there("source", change)
            return known

        return registers.run(f"approval of move {move_id}", write)


def approvals_in(tables: Iterable[ControlTables], move_id: str) -> tuple[Approval, ...]:
    """Return the approvals of a move that any of the tables has, the oldest first.

    Damaged records are skipped and logged: they stop neither a move nor a report.
    """
    key = approval_key(move_id)
    return join_approvals(
        *(decode_or_none(table.documents.get(key), decode_approvals) or () for table in tables)
    )
