"""Worlds in which something is taken away again and again, and seeds that once found a bug."""

from __future__ import annotations

import pytest
from tests.simulation.playing import play

from srm_lab.testing.simulation.faults import DIVERGING, UNKIND

OF_A_KIND = 4
"""The fast tier plays as many seeds of a kind; `test_more_seeds` plays those after them."""


@pytest.mark.timeout(1000)
@pytest.mark.parametrize("kind", [*UNKIND, *DIVERGING])
def test_what_one_log_or_the_state_has_lost_is_found_out(kind: str) -> None:
    play("--kinds", kind, "--seeds", f"0:{OF_A_KIND}")


@pytest.mark.parametrize(
    ("kinds", "seed"),
    [
        pytest.param("truncate target", 12, id="cut in what only a report tells of the map"),
        pytest.param("truncate target", 9, id="a whole log lost while a batch was on its way"),
        pytest.param("all", 59, id="a whole log lost twice"),
        pytest.param("truncate source", 40, id="an idle partition cut, and an older report"),
        pytest.param("truncate source", 53, id="a batch from before the cut arrives after it"),
        pytest.param("truncate source", 6, id="a process that wakes up tells its status"),
        pytest.param("all", 1315, id="no map, and a source that has lost its end"),
        pytest.param("truncate source", 31, id="a source cut and grown to the same end"),
        pytest.param("restore source", 71, id="a restored source uses a leader epoch again"),
        pytest.param("elect forks", 7, id="a source with more of an earlier leader epoch"),
        pytest.param("elect target forks", 7, id="a target with more of an earlier leader epoch"),
        pytest.param("all", 367, id="markers at the end that a copy passes last"),
        pytest.param("all", 1062, id="an idle target elected with another end of equal length"),
        pytest.param("all", 1180, id="markers lost in the second of two histories"),
        pytest.param("all", 1479, id="copies that went astray into a target elected twice"),
        pytest.param("all", 1812, id="a marker written again that an election takes once more"),
        pytest.param("all", 167091, id="deleted markers after the place of a cut"),
        pytest.param("all", 167523, id="a stray batch in a short target, and no report"),
        pytest.param("all", 167513, id="a forged block before the first report"),
        pytest.param("all", 166397, id="a batch astray in a target that lost its whole log"),
        pytest.param("all", 166885, id="equal records in two compacted logs, without a map"),
        pytest.param("all", 168405, id="records of others before the first copy"),
        pytest.param("all", 200863, id="a stray batch in an emptied target, and no report"),
        pytest.param("all", 201193, id="a former target with a marker at the end of the map"),
        pytest.param("all", 300317, id="a restored source whose leader is unknown for a while"),
        pytest.param("all", 168893, id="a source that lost only a marker"),
        pytest.param("all", 400006, id="a late report under a claim that an election took back"),
        pytest.param("all", 800159, id="a cut that the map does not show while it is undecided"),
        pytest.param("all", 900242, id="a former target where its log starts, and a cut source"),
        pytest.param("all", 8000065, id="a log that ends where compaction removed its records"),
        pytest.param("all", 8000301, id="a cut in the aborted records before the first copy"),
        pytest.param("all", 8000899, id="another history elected in the place of deleted records"),
        pytest.param(
            "kill at write,truncate source", 37, id="a kill before the report of a truncation"
        ),
    ],
)
def test_what_was_found_once_stays_found(kinds: str, seed: int) -> None:
    play(str(seed), "--kinds", kinds)
