from __future__ import annotations

import pytest

from srm.domain.moves.findings import Surroundings, surrounding_warnings
from srm.domain.moves.request import MoveRequest
from srm.domain.names.topics import Flow

REQUEST = MoveRequest("failover", "P", "B")
COVERED = frozenset({"T"})


def warned(**around):
    found = Surroundings(**{"opposite_topics": COVERED, **around})
    return [*surrounding_warnings(REQUEST, ["T"], found)]


def test_a_move_in_good_surroundings_has_no_warning():
    assert warned() == []


@pytest.mark.parametrize(
    ("around", "words"),
    [
        ({"opposite_enabled": False}, "set B->P.enabled=true"),
        ({"opposite_topics": frozenset()}, "srm-control topics --source B --target P --add T"),
        ({"absent": {"T": 3}}, "T does not exist on B, producers sent there fail"),
        ({"absent": {"T": 3}}, "--create --topic T --partitions 3"),
        ({"plain_members": {"g": ("c@h",)}}, "group g: c@h does not follow routes"),
        ({"plain_writers": {"T": 2}}, "topic T: 2 of the producers that wrote"),
        ({"plain_writers": {"T": 1}}, "its batches can be acknowledged and never written"),
        ({"plain_members": {"g": ("c@h",)}}, "until it rejoins it reads at P's offsets"),
        ({"shared_ids": {"T-0": (7, 9)}}, "T-0: producer ids 7, 9 of P are used by another"),
        ({"state": {"g": ("g-s-changelog",)}}, "g is a Kafka Streams application with state (g-s"),
        ({"inflows": (Flow("C", "P"),)}, "srm replicator stop --flow 'C->P' before it"),
        ({"staying": {"other": ("T",)}}, "group other reads T on P and does not move"),
        ({"retention_ms": {"T": (None, 1000)}}, "records 1000 ms on B but without limit on P"),
        ({"retention_ms": {"T": (2000, 1000)}}, "raise retention.ms there"),
        (
            {"skew_ms": {"P, seen from h": -8_000}},
            "clock of cluster P, seen from h, is 8.0 s behind",
        ),
    ],
)
def test_each_danger_around_a_move_is_a_warning_with_its_remedy(around, words):
    [warning] = warned(**around)

    assert words in warning


def test_longer_retention_on_the_target_and_small_skew_are_no_dangers():
    assert warned(retention_ms={"T": (1000, None), "U": (5, 6)}, skew_ms={"P": 500}) == []


def test_groups_that_stay_are_one_warning_for_the_topics_they_read_however_many_they_are():
    staying = {f"g{number}": ("T",) for number in range(20)} | {"other": ("T", "U")}

    many, one = warned(staying=staying)

    assert many.startswith("20 groups: g0, g1, g10, g11, g12, g13, g14, g15 and 12 more read T on")
    assert "they get records written after the move" in many
    assert one.startswith("group other reads T, U on P and does not move: it gets")
