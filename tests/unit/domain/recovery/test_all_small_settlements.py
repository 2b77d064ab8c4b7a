"""All settlements of returns with up to four topics, whatever is chosen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations_with_replacement, product

import pytest
from tests.unit.domain.recovery.test_settlement import entry, returned

from srm.domain.moves.disaster import Choice
from srm.domain.recovery.source_return import (
    PartitionReturn,
    Settlement,
    SourceReturn,
    decisions,
    plan_settlement,
)

CHOICES: tuple[Choice | None, ...] = (None, "merge", "keep", "discard")
STATES: dict[str, dict[str, object]] = {
    "nothing is left": {"records": 0, "log_end": 50, "high_watermark": 50},
    "a residue": {},
    "an open transaction": {"high_watermark": 80},
    "no answer": {"records": 0, "error": "its leader is away"},
    "cut": {"shape": "shorter", "copied_to": 40, "cut_from": 40, "cut_to": 50},
    "gone": {"copied_to": 50, "log_start": 60},
    "re-created": {"shape": "rebuilt", "copied_to": 0},
}
NEED_NO_CHOICE = {"nothing is left"}
MOST = 4
OPEN = {"an open transaction", "no answer"}


def cases(
    most: int = MOST - 1,
) -> Iterator[tuple[tuple[str, ...], SourceReturn, dict[str, Choice], Choice | None]]:
    pairs = tuple(product(STATES, CHOICES))
    for size in range(1, most + 1):
        for rows in combinations_with_replacement(pairs, size):
            states = tuple(state for state, _ in rows)
            found = returned(*(entry(f"T{n}", **STATES[state]) for n, state in enumerate(states)))
            named = {f"T{n}": choice for n, (_, choice) in enumerate(rows) if choice}
            # A default is a choice of all topics: it needs no four of them.
            for default in CHOICES if size < MOST else CHOICES[:1]:
                yield states, found, named, default


def effective(state: str, named: Choice | None, default: Choice | None) -> Choice | None:
    """Return what was chosen for a topic: no default decides about one that was re-created."""
    return named or (None if state == "re-created" else default)


def test_it_is_blocked_only_where_a_choice_lacks_or_what_it_leaves_is_not_known() -> None:
    for states, found, named, default in cases(MOST):
        plan = plan_settlement(found, named, default)
        expected = False
        for number, state in enumerate(states):
            choice = effective(state, named.get(f"T{number}"), default)
            lacks = choice is None and state not in NEED_NO_CHOICE
            unseen = state in OPEN and choice in {"keep", "discard"}
            expected |= lacks or unseen or (state == "no answer" and choice is None)
        assert bool(plan.blocked) == expected, (states, named, default, plan.blocked)


def test_no_pause_is_nothing_to_settle() -> None:
    for states, found, named, default in cases():
        assert plan_settlement(replace(found, pause=None), named, default).blocked, states


@pytest.mark.parametrize("choice", ["merge", "keep", "discard"])
def test_what_stays_on_the_source_is_the_residue_and_no_more(choice: Choice) -> None:
    for states, found, named, default in cases():
        plan = plan_settlement(found, named, default)
        if plan.blocked:
            continue
        notes = decisions(found, plan, "r", "ann", 0)
        for partition in found.partitions:
            decided = plan.choices.get(partition.topic)
            if decided != choice:
                continue
            left = [
                note.left_out
                for note in notes
                if note.topic == partition.topic and note.left_out and "gone" not in note.slot
            ]
            expected = [] if choice == "merge" else [partition.residue]
            assert left == [one for one in expected if one], (states, named, default)


def test_what_the_source_has_lost_is_noted_whatever_is_chosen() -> None:
    for states, found, named, default in cases():
        plan = plan_settlement(found, named, default)
        notes = decisions(found, plan, "r", "ann", 0)
        for partition in found.partitions:
            assert _noted(notes, partition, "cut") == (partition.cut_from is not None), states
            assert _gone(plan, found, partition) == (partition.gone_from is not None), states


def _noted(notes: object, partition: PartitionReturn, decision: str) -> bool:
    return any(
        note.topic == partition.topic and note.decision == decision
        for note in notes  # type: ignore[attr-defined]
    )


def _gone(plan: Settlement, found: SourceReturn, partition: PartitionReturn) -> bool:
    notes = decisions(found, plan, "r", "ann", 0)
    wanted = partition.gone_from, partition.log_start
    return any(n.topic == partition.topic and n.left_out == wanted for n in notes)
