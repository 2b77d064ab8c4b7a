"""Every client error has one srm error, and a message that says where and what to do."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from srm.errors import (
    AuthorizationError,
    FencedError,
    GroupActiveError,
    SrmError,
    UnavailableError,
)
from srm.kafka.wire import errors
from srm.kafka.wire.errors import ERROR_CLASSES, kafka_errors, translate

CODES = sorted(
    name
    for name in dir(KafkaError)
    if name.lstrip("_").isupper() and isinstance(getattr(KafkaError, name), int)
)


def test_every_code_of_the_client_library_is_mapped() -> None:
    assert len(CODES) > 150
    assert [name for name in CODES if getattr(KafkaError, name) not in ERROR_CLASSES] == []


def test_no_code_is_mapped_twice() -> None:
    names = [name for group in errors._NAMES.values() for name in group.split()]

    assert len(names) == len(set(names)) == len(ERROR_CLASSES)


def test_codes_that_the_library_calls_retriable_are_retriable_or_conflicts() -> None:
    """A broker that says "try again" must not fail a task for good."""
    assert ERROR_CLASSES[KafkaError.NOT_COORDINATOR].retriable
    assert ERROR_CLASSES[KafkaError.LEADER_NOT_AVAILABLE].retriable
    assert ERROR_CLASSES[KafkaError.COORDINATOR_LOAD_IN_PROGRESS].retriable
    assert ERROR_CLASSES[KafkaError._TRANSPORT].retriable


def test_the_message_says_where_what_and_what_to_do_in_one_line() -> None:
    error = translate(
        KafkaException(KafkaError(KafkaError._TIMED_OUT)), "reading topics of cluster P"
    )

    assert isinstance(error, UnavailableError)
    assert str(error).startswith("reading topics of cluster P: ")
    assert "_TIMED_OUT" in str(error)
    assert "retry" in str(error)
    assert "\n" not in str(error)


def test_a_cluster_with_too_few_brokers_for_a_topic_names_the_keys() -> None:
    error = translate(KafkaError(KafkaError.INVALID_REPLICATION_FACTOR), "x")

    assert "offset-syncs.topic.replication.factor" in error.action


def test_brokers_that_allow_short_transactions_only_have_their_setting_named() -> None:
    error = translate(KafkaError(KafkaError.INVALID_TRANSACTION_TIMEOUT), "x")

    assert "transaction.max.timeout.ms" in error.action


def test_a_missing_right_is_an_authorization_error() -> None:
    code = KafkaError.TOPIC_AUTHORIZATION_FAILED

    assert isinstance(translate(KafkaError(code), "x"), AuthorizationError)


def test_a_code_of_a_newer_broker_is_still_an_srm_error() -> None:
    assert type(translate(KafkaError(9999), "x")) is SrmError


def test_the_block_raises_the_srm_error_with_its_cause() -> None:
    cause = KafkaException(KafkaError(KafkaError.UNKNOWN_MEMBER_ID))

    with (
        pytest.raises(GroupActiveError, match="writing offsets") as caught,
        kafka_errors("writing offsets"),
    ):
        raise cause

    assert caught.value.__cause__ is cause


def test_a_fatal_error_that_came_while_callbacks_were_served_is_the_error() -> None:
    """confluent-kafka serves the next callback with it set, and Python says SystemError."""
    fatal = KafkaException(KafkaError(KafkaError._FENCED, "fenced by a newer instance"))

    with pytest.raises(FencedError, match="writing"), kafka_errors("writing"):
        raise SystemError("returned a result with an exception set") from fatal
    with pytest.raises(SystemError), kafka_errors("writing"):
        raise SystemError("something of Python's own")
