"""Kafka's log of transactions: its records, and what they say of topics."""

from __future__ import annotations

import struct

import pytest

from srm.kafka.admin.transactions import largest, topics_of

HEAD = struct.pack(">qhib", 7, 1, 60_000, 1)
TAIL = struct.pack(">qq", 1, 2)


def test_a_record_of_version_0_names_the_topics_of_its_transaction() -> None:
    topics = struct.pack(">i", 2) + b"".join(
        struct.pack(">h", len(name)) + name + struct.pack(">ii", 1, 0)
        for name in (b"payments", b"__consumer_offsets")
    )

    assert topics_of(b"\x00\x00" + HEAD + topics + TAIL) == {"payments"}


def test_a_record_of_version_1_names_the_topics_of_its_transaction() -> None:
    topics = bytes([3]) + b"".join(
        bytes([len(name) + 1]) + name + bytes([2]) + struct.pack(">i", 0) + b"\x00"
        for name in (b"payments", b"audit")
    )

    assert topics_of(b"\x00\x01" + HEAD + topics + TAIL + b"\x00") == {"payments", "audit"}


@pytest.mark.parametrize(
    "value",
    [
        b"\x00\x00" + HEAD + struct.pack(">i", -1) + TAIL,
        b"\x00\x01" + HEAD + b"\x00" + TAIL + b"\x00",
        b"\x00\x09of another time",
    ],
)
def test_an_ended_transaction_and_an_unknown_version_name_none(value: bytes) -> None:
    assert topics_of(value) == frozenset()


def test_of_sets_within_each_other_only_the_largest_is_kept() -> None:
    sets = [frozenset(names) for names in ("a", "ab", "abc", "bd", "bd", "")]

    assert largest(sets) == (frozenset("abc"), frozenset("bd"))
