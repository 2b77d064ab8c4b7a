"""Record batches of the bench."""

from __future__ import annotations

import random

from aiokafka.record.default_records import DefaultRecordBatch
from bench.cases import CASES
from bench.data import Payload, batch_rounds, copies, keyed_requests, templates, value
from hypothesis import given
from hypothesis import strategies as st

SMALL = Payload(100, "json", "lz4", 7)


def records(batch: bytes) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in DefaultRecordBatch(batch)]


@given(st.integers(1, 64), st.integers(1, 10_000), st.integers(1, 200))
def test_rounds_give_at_least_the_wanted_records_and_no_round_too_many(
    partitions: int, wanted: int, batch_records: int
) -> None:
    payload = Payload(1, batch_records=batch_records)

    rounds = batch_rounds(payload, partitions, wanted)

    per_round = partitions * batch_records
    assert rounds * per_round >= wanted
    assert (rounds - 1) * per_round < wanted


def test_each_request_has_one_batch_for_each_partition() -> None:
    requests = list(copies(SMALL, 3, 2))

    assert [sorted(request) for request in requests] == [[0, 1, 2]] * 2
    assert all(len(records(batch)) == 7 for request in requests for batch in request.values())


def test_values_have_the_size_of_the_payload() -> None:
    for case in CASES:
        made = value(case.payload, random.Random(1))

        assert len(made) == case.payload.size, case.name


def test_templates_are_the_same_in_each_run() -> None:
    def values() -> list[list[tuple[bytes | None, bytes | None]]]:
        templates.cache_clear()
        return [records(batch) for batch in templates(SMALL)]

    assert values() == values()


def test_about_the_wanted_share_of_keyed_records_has_a_key_of_its_own() -> None:
    batches = [b for request in keyed_requests(SMALL, 2, 100, 0.5) for b in request.values()]
    keys = [key for batch in batches for key, _ in records(batch)]

    own = [key for key in keys if key is not None and key.startswith(b"k")]
    assert len(set(own)) == len(own)
    assert 0.4 < len(own) / len(keys) < 0.6
    assert len({key for key in keys if key is not None and key.startswith(b"hot")}) <= 50
