"""A slot's writer of state drops the producer of a dead cluster with all of its threads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from tests.waiting import eventually

from srm.kafka.state import writers
from srm.kafka.state.writers import KafkaStateLog

DEAD = {"bootstrap.servers": "127.0.0.1:1"}


def threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


class RefusedProducer:
    """A producer without the right to write: each call that serves its callbacks raises."""

    def purge(self) -> None:
        pass

    def flush(self, _timeout_s: float) -> None:
        raise KafkaException(KafkaError(KafkaError._FATAL))


def test_a_writer_closes_whatever_its_producer_says_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writers, "open_writer", lambda *_: RefusedProducer())

    KafkaStateLog("B", DEAD).close()


def closed() -> None:
    log = KafkaStateLog("B", DEAD)
    log.write("state", b"key", b"value")
    log.close()


def replaced(log: KafkaStateLog) -> None:
    log.write("state", b"key", b"value")
    [failure] = log.settle([("state", 0)], 0.01).failed.values()
    assert "all known brokers are gone" in str(failure)


def stranded() -> Callable[[], None]:
    log = KafkaStateLog("B", DEAD)
    return lambda: replaced(log)


@pytest.mark.parametrize("made", [lambda: closed, stranded], ids=["closed", "stranded"])
def test_no_thread_is_left(
    made: Callable[[], Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers, "_LOOK_EVERY_S", 0.0)
    drop = made()
    drop()
    before = threads()

    for _ in range(4):
        drop()
    eventually(lambda: threads() <= before + 1, "the threads of four producers end", 5.0)
