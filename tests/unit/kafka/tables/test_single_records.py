"""Answers to a Fetch of one partition, also those that speak of none."""

from __future__ import annotations

import pytest

from srm.domain.names.topics import TopicPartition
from srm.errors import SrmError, UnavailableError
from srm.kafka.tables.single_records import fetched_of
from srm.kafka.wire.frames import FetchResponse
from srm.replication.codes import OFFSET_OUT_OF_RANGE
from srm.replication.ports import Fetched, FetchedPartition

PLACE = TopicPartition("t", 0)


def refused(_topic: str, code: int) -> SrmError:
    return UnavailableError(f"code {code}")


def answer(*partitions: FetchedPartition, code: int = 0) -> FetchResponse:
    return FetchResponse(code, 0, Fetched(list(partitions), None, throttle_time_ms=900))


def of_one(code: int) -> FetchedPartition:
    return FetchedPartition(bytes(16), 0, code, 0, 0, 0, (), memoryview(b""))


def test_a_broker_that_holds_a_client_up_by_a_quota_is_asked_again():
    """It answers without an error, and of no partition: that is no empty log."""
    with pytest.raises(UnavailableError, match="reading t-0: held up by a quota"):
        fetched_of(answer(), PLACE, refused)


def test_what_was_fetched_is_found_and_an_offset_out_of_range_is_nothing():
    found = of_one(0)
    assert fetched_of(answer(found), PLACE, refused) is found
    assert fetched_of(answer(of_one(OFFSET_OUT_OF_RANGE)), PLACE, refused) is None


@pytest.mark.parametrize("given", [answer(code=6), answer(of_one(6))])
def test_an_error_of_the_broker_is_raised_wherever_it_stands(given):
    with pytest.raises(UnavailableError, match="code 6"):
        fetched_of(given, PLACE, refused)
