"""A producer counts the records that its cluster does not take, and announces the reason."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, Message
from tests.unit.client.test_giving_up import Watcher, config
from tests.waiting import DEADLINE_S, eventually

from srm.client import cluster_producers, routing
from srm.client.cluster_producers import SILENT_S, STUCK_S, Deliveries
from srm.client.messages import HeldError
from srm.client.producer import FailoverProducer
from srm.config.loader import load_config
from srm.config.model import Config
from srm.domain.moves.routing import Route

__all__ = ["config"]

HOLD = Route(7, "P", "hold", "m")
GO = Route(7, "B", "go", "m", decided=True)
WRITING = "writing to Payments on cluster B"
REFUSAL = f"{WRITING}: Broker: Unknown topic or partition (UNKNOWN_TOPIC_OR_PART)"


class Native:
    """confluent-kafka's producer on a cluster that gets the topic later."""

    def __init__(self, *_: object, **__: object) -> None:
        self.waiting: list[Callable[[Any, Any], None]] = []
        self.error: KafkaError | None = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        self.raised: KafkaError | None = None
        self.refused: KafkaError | None = None
        self.written: list[bytes] = []

    def __len__(self) -> int:
        return len(self.waiting)

    def produce(
        self, _topic: str, *, value: Any, on_delivery: Callable[[Any, Any], None], **_: object
    ) -> None:
        if self.raised is not None:
            raise KafkaException(self.raised)

        def report(error: KafkaError | None, message: Any) -> None:
            self.written += [value] * (error is None)
            on_delivery(error, message)

        self.waiting.append(report)

    def begin_transaction(self) -> None: ...

    def init_transactions(self, _timeout: float) -> None:
        if self.refused is not None:
            raise KafkaException(self.refused)

    def fail(self, code: int) -> None:
        """Forget the topic, as librdkafka does: its records fail, and so does each new one."""
        self.raised = KafkaError(KafkaError._UNKNOWN_TOPIC)
        waiting, self.waiting = self.waiting, []
        for report in reversed(waiting):
            report(KafkaError(code), Message("Payments", error=KafkaError(code)))

    def list_topics(self, topic: str, timeout: float) -> Any:
        assert timeout < 1, "routes are not followed during a query"
        return SimpleNamespace(topics={topic: SimpleNamespace(error=self.error, partitions={})})

    def poll(self, _timeout: float) -> int:
        while self.error is None and self.waiting:
            self.waiting.pop(0)(None, Message("Payments"))
        return 0

    flush = poll


@pytest.fixture
def native(monkeypatch: pytest.MonkeyPatch) -> Native:
    """The producer of each cluster; reasons are looked for at once, and repeated often."""
    only, usual = Native(), cluster_producers.STUCK_S
    assert usual > 1
    monkeypatch.setattr(cluster_producers, "STUCK_S", 0.05)
    monkeypatch.setattr(routing, "REPEAT_S", 0.02)
    monkeypatch.setattr("srm.client.cluster_producers.Producer", lambda *_, **__: only)
    return only


def test_records_of_a_missing_topic_are_counted_and_announced_until_they_are_written(
    config: Config, native: Native
) -> None:
    watcher = Watcher(config)
    watcher.now = GO
    made = FailoverProducer({}, watcher=cast("Any", watcher))
    for _ in range(3):
        made.produce("Payments", b"v")
    eventually(lambda: made.count_unwritten("Payments") == 3, "counted")
    made.produce("Payments", b"v")
    eventually(lambda: watcher.said[-1].unwritten == {REFUSAL: 4}, "repeated with the new count")
    said = {ack.state for ack in watcher.said}
    native.error = None
    eventually(lambda: watcher.said[-1].state == "processed", "the first record is acknowledged")
    made.close()

    assert said == {"resumed"}
    assert watcher.said[-1].unwritten == {}
    assert made.count_unwritten("Payments") == 0
    assert {*watcher.said[-1].ages_ms} == {"resumed", "processed"}


def test_a_call_that_waits_at_go_is_announced_at_once_and_an_idle_producer_is_not(
    config: Config, native: Native
) -> None:
    native.error = None
    watcher = Watcher(config)
    watcher.now = HOLD
    made = FailoverProducer({}, topics=["Payments", "Idle"], watcher=cast("Any", watcher))
    made.start()
    eventually(lambda: len({ack.subject for ack in watcher.said}) == 2, "held")
    waiting = threading.Thread(target=made.produce, args=("Payments",), daemon=True)
    waiting.start()
    eventually(lambda: made._deliveries["Payments"].calls == 1, "it waits")
    watcher.now = GO
    waiting.join(DEADLINE_S)
    made.close()

    resumed = {ack.subject: ack for ack in reversed(watcher.said) if ack.state == "resumed"}
    assert resumed["topic:Payments"].unwritten == {f"{WRITING}: no record is acknowledged yet": 1}
    assert resumed["topic:Idle"].unwritten == {}
    assert "processed" not in {ack.state for ack in watcher.said if ack.subject == "topic:Idle"}


def test_a_record_that_failed_is_the_reason_until_one_is_acknowledged() -> None:
    own = Deliveries(ended=0)
    own.add(10)
    own.fail(11, "refused")

    assert not own.is_stuck(10 + STUCK_S / 2)
    assert own.is_stuck(10 + STUCK_S)
    assert own.reason(12, WRITING, "") == "refused"
    assert own.reason(12, WRITING, "unknown topic") == "unknown topic"
    own.reported = "refused"
    assert not own.is_stuck(100), "it has nothing to write, and the reason is known"
    own.add(100)
    own.acknowledge(101)
    assert (own.reason(200, WRITING, ""), own.is_stuck(200)) == ("", False)


def test_a_purged_record_gives_no_reason_and_a_silent_cluster_gives_one_after_a_while() -> None:
    own = Deliveries(ended=0)
    own.add(10)
    own.fail(11)
    assert not own.is_stuck(100)

    own.add(100)
    assert own.is_stuck(100 + STUCK_S)
    assert own.reason(100 + STUCK_S, WRITING, "") == "", "a leader may be elected"
    late = f"{WRITING}: no record was acknowledged for 30 s"
    assert own.reason(100 + SILENT_S, WRITING, "") == late


def made_on_b(config: Config, **conf: object) -> tuple[FailoverProducer, Watcher]:
    watcher = Watcher(config)
    watcher.now = GO
    made = FailoverProducer(conf, topics=["Payments"], watcher=cast("Any", watcher))
    made.start()
    return made, watcher


@pytest.mark.parametrize("code", [KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART])
def test_records_of_a_topic_deleted_after_the_move_wait_for_it_in_their_order(
    config: Config, native: Native, code: int
) -> None:
    reported: list[Any] = []
    made, watcher = made_on_b(config)
    for value in (b"0", b"1", b"2"):
        made.produce("Payments", value, on_delivery=lambda error, _: reported.append(error))
    native.fail(code)
    later = threading.Thread(target=made.produce, args=("Payments", b"3"), daemon=True)
    later.start()
    eventually(lambda: watcher.said[-1].unwritten == {REFUSAL: 4}, "all are counted")
    assert (len(made), made.count_unwritten("Payments"), native.written) == (3, 4, [])

    native.raised = native.error = None
    later.join(DEADLINE_S)
    made.close()

    assert native.written == [b"0", b"1", b"2", b"3"]
    assert reported == [None] * 3
    assert watcher.said[-1].unwritten == {}


def test_a_topic_that_does_not_return_fails_its_records_at_their_deadline(
    config: Config, native: Native
) -> None:
    made, _ = made_on_b(config, **{"delivery.timeout.ms": 400})
    made.produce("Payments", b"0")
    native.fail(KafkaError._UNKNOWN_PARTITION)

    with pytest.raises(HeldError, match=r"Payments on cluster B.*_UNKNOWN_.*not handed over"):
        made.produce("Payments", b"1")
    with pytest.raises(KafkaException, match="Unknown partition"):
        made.flush()
    assert len(made) == 0


def test_a_record_refused_when_it_is_handed_over_is_counted(config: Config, native: Native) -> None:
    native.error = None
    native.raised = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    made, watcher = made_on_b(config)
    with pytest.raises(KafkaException, match="to the application's principal"):
        made.produce("Payments", b"0")

    granting = "grant Write on topic Payments to the application's principal"
    eventually(lambda: granting in str(watcher.said[-1].unwritten), "announced")
    assert str(watcher.said[-1].unwritten).count(WRITING) == 1


def test_a_producer_without_the_right_to_its_transactional_id_is_announced(
    config: Config, native: Native
) -> None:
    native.error = None
    native.refused = KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    made, watcher = made_on_b(config, **{"transactional.id": "shop"})
    with pytest.raises(KafkaException):
        made.init_transactions(1)

    eventually(lambda: any(ack.unwritten for ack in watcher.said), "announced")
    [reason] = watcher.said[-1].unwritten
    assert "grant Write on transactional id shop to the application's principal" in reason


def test_a_record_that_timed_out_names_the_reason_that_is_known(
    config: Config, native: Native
) -> None:
    made, watcher = made_on_b(config)
    made.produce("Payments", b"0")
    eventually(lambda: watcher.said[-1].unwritten == {REFUSAL: 1}, "known")
    for report in native.waiting:
        report(KafkaError(KafkaError._MSG_TIMED_OUT), Message("Payments"))
    native.waiting.clear()

    with pytest.raises(KafkaException) as raised:
        made.flush()
    error = raised.value.args[0]
    assert error.code() == KafkaError._MSG_TIMED_OUT
    assert error.str() == f"{REFUSAL}; not written in time (_MSG_TIMED_OUT)"
    assert watcher.said[-1].unwritten == {REFUSAL: 1}


@pytest.mark.parametrize("in_file", [False, True])
@pytest.mark.parametrize("name", ["delivery.timeout.ms", "message.timeout.ms"])
def test_a_delivery_timeout_of_0_waits_without_limit(
    config: Config, native: Native, name: str, in_file: bool
) -> None:
    native.error = None
    if in_file:
        with Path(config.path).open("a") as file:
            file.write(f"\nproducer.{name} = 0\n")
    watcher = Watcher(load_config(config.path))
    watcher.now = HOLD
    made = FailoverProducer({} if in_file else {name: 0}, watcher=cast("Any", watcher))
    waiting = threading.Thread(target=made.produce, args=("Payments",), daemon=True)
    waiting.start()
    eventually(lambda: made._deliveries["Payments"].calls == 1, "it waits")
    watcher.now = GO
    waiting.join(DEADLINE_S)
    made.close()

    assert native.written == [None]


def test_a_partition_that_the_topic_does_not_have_fails_its_record_and_holds_up_no_other(
    config: Config, native: Native
) -> None:
    """Before its first metadata the producer takes the record, and reports it later."""
    reported: list[Any] = []
    native.error = None
    made, _ = made_on_b(config)
    made.produce(
        "Payments", b"0", partition=99, on_delivery=lambda error, _: reported.append(error)
    )
    native.fail(KafkaError._UNKNOWN_PARTITION)
    native.raised = KafkaError(KafkaError._UNKNOWN_PARTITION)
    eventually(lambda: len(made._reports) == 1, "given back")
    with pytest.raises(KafkaException, match="_UNKNOWN_PARTITION"):
        made.produce("Payments", b"1", partition=99)
    native.raised = None
    made.produce("Payments", b"2", partition=0)
    made.close()

    assert native.written == [b"2"]
    assert [error.code() for error in reported] == [KafkaError._UNKNOWN_PARTITION]


def test_nothing_is_handed_over_before_records_that_are_still_to_be_returned(
    config: Config, native: Native
) -> None:
    """The topic is there again, and failures of earlier records are not reported yet."""
    made, _ = made_on_b(config)
    for value in (b"0", b"1"):
        made.produce("Payments", value)
    reports, native.waiting = native.waiting, []
    native.raised = KafkaError(KafkaError._UNKNOWN_TOPIC)
    later = threading.Thread(target=made.produce, args=("Payments", b"2"), daemon=True)
    later.start()
    eventually(lambda: made._deliveries["Payments"].failure, "refused")
    native.raised = native.error = None
    missing = KafkaError(KafkaError._UNKNOWN_TOPIC)
    for report in reversed(reports):
        later.join(0.2)
        report(missing, Message("Payments", error=missing))
    later.join(DEADLINE_S)
    made.close()

    assert native.written == [b"0", b"1", b"2"]


def test_a_transaction_does_not_wait_for_a_topic(config: Config, native: Native) -> None:
    native.error = None
    made, _ = made_on_b(config, **{"transactional.id": "shop"})
    made.init_transactions(1)
    made.begin_transaction()
    native.raised = KafkaError(KafkaError._UNKNOWN_TOPIC)

    with pytest.raises(KafkaException, match="_UNKNOWN_TOPIC"):
        made.produce("Payments", b"0")


def test_a_producer_id_that_is_given_at_last_ends_the_reason(
    config: Config, native: Native
) -> None:
    native.error = None
    native.refused = KafkaError(KafkaError._TIMED_OUT)
    made, watcher = made_on_b(config, **{"transactional.id": "shop"})
    with pytest.raises(KafkaException):
        made.init_transactions(1)
    eventually(lambda: any(ack.unwritten for ack in watcher.said), "announced")
    native.refused = None
    made.init_transactions(1)

    eventually(lambda: not watcher.said[-1].unwritten, "withdrawn, though nothing is written yet")
    said = len(watcher.said)
    eventually(lambda: len(watcher.said) > said + 5, "repeated")
    assert not any(ack.unwritten for ack in watcher.said[said:])


def test_a_batch_waits_once_for_a_topic(config: Config, native: Native) -> None:
    made, _ = made_on_b(config, **{"delivery.timeout.ms": 300})
    native.raised = KafkaError(KafkaError._UNKNOWN_TOPIC)
    batch: list[dict[str, Any]] = [{"value": b"%d" % number} for number in range(100)]
    began = time.monotonic()

    assert made.produce_batch("Payments", batch) == 0
    assert time.monotonic() - began < 5
    assert {message["_error"].code() for message in batch} == {KafkaError._QUEUE_FULL}
