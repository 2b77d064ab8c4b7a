"""TLC checks the protocol of moves: what holds, and what breaks without each guard."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cases import cases
from tests.spec.tlc import SPEC, Outcome, amended, check

_NOBODY = {"Clients": "{}", "MaxGeneration": "1", "MaxBeat": "0"}
_ONE_CLIENT = {"Clients": '{"sees P"}', "MaxGeneration": "1", "MaxBeat": "1"}

pytestmark = pytest.mark.timeout(700)

# model: (the configuration that guards are taken from, guard: (what is enough to see it, the
# invariant that breaks))
_MOVE = {
    "fence": (_NOBODY, "OneOutcome"),
    "intent": (_NOBODY, "OneOutcome"),
    "rank": (_NOBODY, "TheHoldCanBeEnded"),
    "target first": ({**_ONE_CLIENT, "MaxBeat": "0"}, "NobodyGoesEarly"),
    "lease": ({**_ONE_CLIENT, "MaxBeat": "0"}, "DecidedOnlyWithTheGateOpen"),
    "attempt": ({**_ONE_CLIENT, "MaxGeneration": "2", "MaxBeat": "0"}, "OneOutcome"),
    "chain": (_ONE_CLIENT, "DecidedOnlyWithTheGateOpen"),
    "beat on source": (_ONE_CLIENT, "DecidedOnlyWithTheGateOpen"),
    "ended": ({**_NOBODY, "MaxBeat": "1"}, "EndedHoldsEnd"),
    "read before lapse": (_ONE_CLIENT, "DecidedOnlyWithTheGateOpen"),
    "intent is kept": ({**_NOBODY, "MaxBeat": "1"}, "OneOutcome"),
    "clock": ({**_NOBODY, "Unplanned": '{"P", "B"}'}, "OneOutcome"),
    "stamp": ({**_NOBODY, "MaxGeneration": "2", "Unplanned": '{"P", "B"}'}, "OneOutcome"),
}
_THIRD = {"LastMove": "3", "MaxGeneration": "3"}
_CALLS = {**_THIRD, "Kinds": '{"call"}'}
_OFFSETS = {**_THIRD, "Kinds": '{"offset"}'}
_EFFECTS = {
    "fence again": ({}, "ActiveSideIsOpen"),
    "fence after release": ({}, "ActiveSideIsOpen"),
    "lifted lately": ({}, "ActiveSideIsOpen"),
    "fence of the later": ({}, "OldSideIsClosed"),
    "superseded": ({**_CALLS, "Off": '{"superseded", "order"}'}, "RedirectorAgrees"),
    "call again": ({**_CALLS, "Off": '{"call again", "order"}'}, "RedirectorAgrees"),
    "call of the later": ({**_CALLS, "Off": '{"call of the later", "order"}'}, "RedirectorAgrees"),
    "order": ({**_CALLS, "Deaths": "1"}, "RedirectorAgrees"),
    "ledger": (_OFFSETS, "OffsetIsOurs"),
    "settled": (_OFFSETS, "OffsetIsOurs"),
}
_ONE_SLOT = {"Slots": '{"a"}', "MaxRecords": "1", "MaxCuts": "0"}
_TWO_DISASTERS = {**_ONE_SLOT, "MaxDisasters": "2"}
_RETURN = {
    "hears": (_ONE_SLOT, "NothingSealedGrows"),
    "read under the claim": (_ONE_SLOT, "NothingSealedGrows"),
    "seal": (_ONE_SLOT, "NothingSealedGrows"),
    "pause first": (_ONE_SLOT, "NothingSealedGrows"),
    "pause in force": (_ONE_SLOT, "PausesAreAsSeen"),
    "shared pause": (_TWO_DISASTERS, "NothingSealedGrows"),
    "same pause": (_TWO_DISASTERS, "PausesAreAsSeen"),
    "settled first": (_ONE_SLOT, "ActiveIsCopied"),
    "routes": (_ONE_SLOT, "NothingRoutedIsLeft"),
    "range": ({**_ONE_SLOT, "MaxRecords": "2"}, "DecisionsCoverWhatTheySaw"),
    "epoch": ({"Slots": '{"a"}'}, "DecisionsCoverWhatTheySaw"),
}
WITHOUT = {"Move": _MOVE, "Effects": _EFFECTS, "Return": _RETURN}
HOLDS = {
    "Move": ("Move", "Clients", "Opposite", "Unplanned", "HeldForEver"),
    "Effects": ("Effects", "Third", "Calls", "Offsets"),
    "Return": ("Return", "Slots", "Again"),
}


@pytest.mark.parametrize(
    ("model", "name"),
    cases([(m, name) for m in HOLDS for name in HOLDS[m]], [("Effects", "Late")]),
)
def test_the_protocol_keeps_its_promises(model: str, name: str, tmp_path: Path) -> None:
    outcome = check(tmp_path, model, (SPEC / f"{name}.cfg").read_text(), workers=2)
    _say(name, outcome)
    assert outcome.violated is None, outcome.output
    assert outcome.distinct > 1_000


@pytest.mark.parametrize(("model", "guard"), [(m, guard) for m in WITHOUT for guard in WITHOUT[m]])
def test_without_a_guard_a_promise_breaks(model: str, guard: str, tmp_path: Path) -> None:
    constants, promise = WITHOUT[model][guard]
    config = (SPEC / f"{model}.cfg").read_text()
    whole = amended(config, {"Off": f'{{"{guard}"}}', **constants})
    outcome = check(tmp_path, model, whole)
    _say(f"without {guard}", outcome)
    assert outcome.violated == promise, outcome.output


@pytest.mark.parametrize(
    ("model", "name", "promise"),
    [
        ("Today", "Today_late_hold", "SomebodyCanEndTheHold"),
        ("Today", "Today_race", "GoneMeansTarget"),
        ("Effects", "Killed", "ActiveSideIsOpen"),
    ],
)
def test_the_protocol_without_fences_had_two_dead_ends_and_a_late_effect_needs_its_process(
    model: str, name: str, promise: str, tmp_path: Path
) -> None:
    outcome = check(tmp_path, model, (SPEC / f"{name}.cfg").read_text())
    _say(name, outcome)
    assert outcome.violated == promise, outcome.output


def test_the_guards_that_are_switched_off_are_those_of_the_model() -> None:
    for model, guards in WITHOUT.items():
        text = (SPEC / f"{model}.tla").read_text()
        assert {part.partition('"')[0] for part in text.split('On("')[1:]} == set(guards)


def _say(name: str, outcome: Outcome) -> None:
    result = outcome.violated or "holds"
    print(f"{name}: {result}, {outcome.generated} states, {outcome.distinct} distinct")  # noqa: T201
