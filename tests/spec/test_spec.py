"""TLC checks the protocol of moves: what holds, and what breaks without each guard."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.spec.tlc import SPEC, Outcome, amended, check

_NOBODY = {"Clients": "{}", "MaxGeneration": "1", "MaxBeat": "0"}
_ONE_CLIENT = {"Clients": '{"sees P"}', "MaxGeneration": "1", "MaxBeat": "1"}

pytestmark = pytest.mark.timeout(700)

# guard: (what is enough to see it, the invariant that breaks)
WITHOUT = {
    "fence": (_NOBODY, "OneOutcome"),
    "intent": (_NOBODY, "OneOutcome"),
    "rank": (_NOBODY, "TheHoldCanBeEnded"),
    "target first": ({**_ONE_CLIENT, "MaxBeat": "0"}, "NobodyGoesEarly"),
    "lease": ({**_ONE_CLIENT, "MaxBeat": "0"}, "DecidedOnlyWithTheGateOpen"),
    "attempt": ({**_ONE_CLIENT, "MaxGeneration": "2", "MaxBeat": "0"}, "OneOutcome"),
    "beat on source": (_ONE_CLIENT, "DecidedOnlyWithTheGateOpen"),
    "read before lapse": (_ONE_CLIENT, "DecidedOnlyWithTheGateOpen"),
    "intent is kept": ({**_NOBODY, "MaxBeat": "1"}, "OneOutcome"),
    "clock": ({**_NOBODY, "Unplanned": '{"P", "B"}'}, "OneOutcome"),
    "stamp": ({**_NOBODY, "MaxGeneration": "2", "Unplanned": '{"P", "B"}'}, "OneOutcome"),
}


@pytest.mark.parametrize("name", ["Move", "Clients", "Opposite", "Unplanned", "HeldForEver"])
def test_the_protocol_keeps_its_promises(name: str, tmp_path: Path) -> None:
    outcome = check(tmp_path, "Move", (SPEC / f"{name}.cfg").read_text(), workers=2)
    _say(name, outcome)
    assert outcome.violated is None, outcome.output
    assert outcome.distinct > 1_000


@pytest.mark.parametrize("guard", WITHOUT)
def test_without_a_guard_a_promise_breaks(guard: str, tmp_path: Path) -> None:
    constants, promise = WITHOUT[guard]
    config = (SPEC / "Move.cfg").read_text()
    whole = amended(config, {**constants, "Off": f'{{"{guard}"}}'})
    outcome = check(tmp_path, "Move", whole)
    _say(f"without {guard}", outcome)
    assert outcome.violated == promise, outcome.output


@pytest.mark.parametrize(
    ("name", "promise"),
    [("Today_late_hold", "SomebodyCanEndTheHold"), ("Today_race", "GoneMeansTarget")],
)
def test_the_protocol_without_fences_had_two_dead_ends(
    name: str, promise: str, tmp_path: Path
) -> None:
    outcome = check(tmp_path, "Today", (SPEC / f"{name}.cfg").read_text())
    _say(name, outcome)
    assert outcome.violated == promise, outcome.output


def test_the_guards_that_are_switched_off_are_those_of_the_model() -> None:
    text = (SPEC / "Move.tla").read_text()
    assert {part.partition('"')[0] for part in text.split('On("')[1:]} == set(WITHOUT)


def _say(name: str, outcome: Outcome) -> None:
    result = outcome.violated or "holds"
    print(f"{name}: {result}, {outcome.generated} states, {outcome.distinct} distinct")  # noqa: T201
