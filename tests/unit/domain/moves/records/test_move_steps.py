"""The steps of a move are written once; what records and documents have of them agrees."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from srm.domain.moves.progress import (
    DECIDED,
    HELD,
    RUN_STEPS,
    STEPS,
    MoveProgress,
    MoveStep,
    RunStep,
)

PAGE = Path(__file__).parents[5] / "docs" / "failover.md"


def test_records_have_the_intents_and_ends_of_the_steps_in_their_order() -> None:
    recorded = [step for each in STEPS for step in (each.intent, each.ended) if step]

    assert [step for step in recorded if step != "ready"] == [
        step for step in get_args(MoveStep) if step != "released"
    ]
    assert [each.name for each in STEPS] == list(get_args(RunStep))


def test_a_failure_releases_until_the_decision_and_clients_hear_of_each_step_after_it() -> None:
    releasing = [each for each in RUN_STEPS if each.releases]
    ends = {step for each in releasing for step in (each.intent, each.ended) if step}

    assert ends - {"ready", "gone"} == HELD
    assert {each.ended for each in RUN_STEPS if not each.releases} | {"gone"} == DECIDED
    assert {MoveProgress("m1", step=step).order_in_force for step in HELD} == {"hold"}
    assert {MoveProgress("m1", step=step).order_in_force for step in DECIDED} == {"go"}


def test_the_page_on_moves_has_a_row_for_each_step_with_what_it_records() -> None:
    _, _, rows = PAGE.read_text("utf-8").partition(
        "| step | does | state after it |\n|---|---|---|\n"
    )
    table = {}
    for row in rows.partition("\n\n")[0].splitlines():
        name, _, states = row.strip("| ").split(" | ")
        table[name] = re.findall(r"`(\w+)`", states)

    wanted = {
        each.name: [
            "held" if step == "ready" else step for step in (each.intent, each.ended) if step
        ]
        for each in STEPS
    }
    assert table == wanted | {"release": ["released"]}
