"""Requests of the benchmark of clients that follow routes."""

from __future__ import annotations

import struct

from bench.following import fetch

from srm.domain.names import internal_topics


def test_a_fetch_is_encoded_with_its_size_its_offset_and_its_limit() -> None:
    request = fetch(7, 200)

    assert struct.unpack(">i", request[:4]) == (len(request) - 4,)
    assert internal_topics.ROUTING.encode() in request
    assert request.endswith(struct.pack(">iqi", 0, 7, 1 << 20))
    assert struct.pack(">ii", -1, 200) in request
