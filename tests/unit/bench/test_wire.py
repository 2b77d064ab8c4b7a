"""What the benchmark reads of answers."""

from __future__ import annotations

import struct

from bench.wire import _read_produced


def entry(topic: bytes, errors: dict[int, int]) -> bytes:
    partitions = (
        struct.pack(">ihqqqih", number, error, 0, 0, 0, 0, -1) for number, error in errors.items()
    )
    head = struct.pack(">h", len(topic)) + topic + struct.pack(">i", len(errors))
    return head + b"".join(partitions)


def test_a_new_topic_that_an_answer_names_twice_is_read_whole() -> None:
    """A broker that knows some of its partitions does so; it broke a run of the benchmark."""
    body = struct.pack(">i", 2) + entry(b"T", {1: 0, 2: 0}) + entry(b"T", {0: 3})

    assert _read_produced(body) == {0: 3, 1: 0, 2: 0}
