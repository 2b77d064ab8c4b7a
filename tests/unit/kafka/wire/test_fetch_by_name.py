"""Answers to a Fetch of one partition, also those that speak of none."""

from __future__ import annotations

import pytest

from srm.errors import UnavailableError
from srm.kafka.wire.fetch_by_name import fetched_of
from srm.replication.codes import OFFSET_OUT_OF_RANGE


def refused(code: int) -> UnavailableError:
    return UnavailableError(f"code {code}")


def answer(*topics: object, code: int = 0) -> dict[str, object]:
    return {"throttle_time_ms": 900, "error_code": code, "session_id": 0, "topics": list(topics)}


def of_one(code: int) -> dict[str, object]:
    return {"topic": "t", "partitions": [{"partition": 0, "error_code": code, "records": b""}]}


def test_a_broker_that_holds_a_client_up_by_a_quota_is_asked_again():
    """It answers without an error, and of no partition: that is no empty log."""
    with pytest.raises(UnavailableError, match="reading t: held up by a quota"):
        fetched_of(answer(), "reading t", refused)


def test_what_was_fetched_is_found_and_an_offset_out_of_range_is_nothing():
    assert fetched_of(answer(of_one(0)), "reading t", refused) == of_one(0)["partitions"][0]
    assert fetched_of(answer(of_one(OFFSET_OUT_OF_RANGE)), "reading t", refused) is None


@pytest.mark.parametrize("given", [answer(code=6), answer(of_one(6))])
def test_an_error_of_the_broker_is_raised_wherever_it_stands(given):
    with pytest.raises(UnavailableError, match="code 6"):
        fetched_of(given, "reading t", refused)
