"""Clients leave a cluster that is given up at once, whatever their calls there wait for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition
from tests.waiting import DEADLINE_S, eventually

from srm.client import consumer as consumer_module
from srm.client.cluster_producers import ClusterProducers, Record, Transactions
from srm.client.consumer import FailoverConsumer
from srm.client.producer import FailoverProducer
from srm.config.loader import load_config
from srm.config.model import Config
from srm.domain.moves.announcements import Ack
from srm.domain.moves.routing import ERA, Route

HOME = Route(0, "P", "go")
HOLD = Route(ERA, "P", "hold", "m")
GONE = Route(ERA, "B", "go", "m", decided=True)
PLANNED = Route(1, "P", "hold", "planned")
READ = 3


class Watcher:
    """Says one route for all."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.home = "P"
        self.now = HOME
        self.said: list[Ack] = []

    def start(self, **_: object) -> None: ...

    def route(self, _subject: str) -> Route:
        return self.now

    def wait_change(self, _subject: str, _known: Route, _timeout_s: float) -> Route:
        return self.now

    def acknowledge(self, ack: Ack) -> None:
        self.said.append(ack)

    def withdraw(self, ack: Ack) -> None: ...


class Native:
    """confluent-kafka's consumer; on P nothing is answered before ``answers`` is set."""

    made: list[Native]
    answers: threading.Event
    before_commit: Callable[[], None]

    def __init__(self, properties: dict[str, Any], **_: object) -> None:
        self.on_p = properties["bootstrap.servers"] == "p:9092"
        self.properties = properties
        self.calls: list[str] = []
        self.messages: list[Message] = []
        self.committed_offset = -1001
        self.subscribed: dict[str, Any] = {}
        Native.made.append(self)

    def subscribe(self, topics: list[str], **callbacks: Any) -> None:
        self.subscribed = callbacks
        self.messages = [
            Message(topic=topics[0], partition=0, offset=n, value=b"v") for n in range(READ + 1)
        ]

    def poll(self, _timeout: float) -> Message | None:
        if on_assign := self.subscribed.pop("on_assign", None):
            on_assign(self, [TopicPartition("Payments", 0)])
        return self.messages.pop(0) if self.messages else None

    def committed(self, partitions: list[TopicPartition], **_: object) -> list[TopicPartition]:
        return [TopicPartition(p.topic, p.partition, self.committed_offset) for p in partitions]

    def memberid(self) -> str:
        return "member-1"

    def consumer_group_metadata(self) -> object:
        return object()

    def store_offsets(self, **_: object) -> None: ...

    def commit(self, offsets: Any = (), *, asynchronous: bool) -> list[TopicPartition]:
        assert not asynchronous
        Native.before_commit()
        self._answer("commit")
        return list(offsets)

    def close(self) -> None:
        self._answer("close")
        self.subscribed["on_revoke"](self, [TopicPartition("Payments", 0)])
        self.properties["error_cb"](KafkaError(KafkaError._ALL_BROKERS_DOWN))

    def _answer(self, call: str) -> None:
        if self.on_p:
            assert threading.current_thread() is not threading.main_thread(), call
            assert Native.answers.wait(DEADLINE_S)
        self.calls.append(call)


class Application:
    """Has read and processed records on P; notes which of its callbacks run, and where."""

    def __init__(self, config: Config, on_revoke: Any = None, **conf: object) -> None:
        self.watcher = Watcher(config)
        self.called: list[tuple[str, bool]] = []
        conf = {"group.id": "g", "error_cb": lambda _error: self.note("error"), **conf}
        self.consumer = FailoverConsumer(conf, watcher=self.watcher)
        self.consumer.subscribe(
            ["Payments"],
            on_assign=lambda *_: self.note("assign"),
            on_revoke=on_revoke or (lambda *_: self.note("revoke")),
            on_lost=lambda *_: self.note("lost"),
        )
        for _ in range(READ + 1):  # of the last one it is not known whether it is processed
            assert self.consumer.poll(0).cluster == "P"

    def note(self, what: str) -> None:
        self.called.append((what, threading.current_thread() is threading.main_thread()))

    def tell(self, route: Route) -> Callable[[], None]:
        return lambda: setattr(self.watcher, "now", route)

    @property
    def uncommitted(self) -> dict[str, int]:
        return dict(self.watcher.said[-1].uncommitted)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    path = tmp_path / "srm.properties"
    path.write_text(
        "clusters = P, B\nP.bootstrap.servers = p:9092\nB.bootstrap.servers = b:9092\n"
        "P->B.enabled = true\nB->P.enabled = true\n"
    )
    return load_config(path)


@pytest.fixture(autouse=True)
def natives(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Native]]:
    checked = consumer_module.Consumer

    def made(properties: dict[str, Any], **given: Any) -> Any:
        return (Native if "bootstrap.servers" in properties else checked)(properties, **given)

    monkeypatch.setattr(consumer_module, "Consumer", made)
    Native.made, Native.answers = [], threading.Event()
    Native.before_commit = lambda: None
    yield Native.made
    Native.answers.set()


def ended(native: Native) -> Callable[[], bool]:
    return lambda: native.calls == ["commit", "close"]


def test_a_group_leaves_at_once_and_reads_on_the_other_cluster(
    config: Config, natives: list[Native]
) -> None:
    application = Application(config)
    application.watcher.now = HOLD
    assert application.consumer.poll(0) is None
    assert application.consumer.cluster is None
    assert application.called == [("assign", True), ("lost", True)]
    assert application.uncommitted == {"Payments-0": READ + 1}

    application.watcher.now = GONE
    eventually(lambda: application.consumer.poll(0), "it reads")
    assert application.consumer.cluster == "B"
    assert application.uncommitted == {"Payments-0": READ + 1}
    # Then P answers after all: the new stay hears nothing of it.
    Native.answers.set()
    eventually(ended(natives[0]), "what was processed is committed on P")
    assert application.called[2:] == [("assign", True)]
    assert application.consumer.cluster == "B"


def test_a_consumer_is_closed_while_its_former_cluster_does_not_answer(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_module, "_CLOSE_S", 0.05)
    left, here = Application(config), Application(config)
    left.watcher.now = here.watcher.now = HOLD
    left.consumer.poll(0)

    left.consumer.close()
    here.consumer.close()

    assert not Native.answers.is_set()


def test_a_commit_that_waits_is_over_and_a_later_one_asks_nothing(config: Config) -> None:
    application = Application(config)
    Native.before_commit = application.tell(HOLD)

    assert application.consumer.commit(asynchronous=False) == []
    assert application.consumer.poll(0) is None
    assert application.consumer.commit(asynchronous=False) == []


@pytest.mark.parametrize(
    ("query", "arguments"),
    [
        ("committed", ([],)),
        ("list_topics", ()),
        ("get_watermark_offsets", (TopicPartition("Payments", 0),)),
        ("offsets_for_times", ([],)),
    ],
)
def test_a_query_that_waits_is_over(
    config: Config, natives: list[Native], query: str, arguments: tuple[Any, ...]
) -> None:
    application = Application(config)

    def wait(*_: object, **__: object) -> None:
        application.watcher.now = HOLD
        assert Native.answers.wait(DEADLINE_S)

    setattr(natives[0], query, wait)
    with pytest.raises(KafkaException, match="abandoned") as refused:
        getattr(application.consumer, query)(*arguments)
    assert refused.value.args[0].retriable()
    assert application.consumer.poll(0) is None
    assert application.consumer.cluster is None


def test_offsets_that_a_transaction_has_committed_are_not_read_again(
    config: Config, routes: Routes
) -> None:
    application = Application(config, **{"enable.auto.commit": False})
    metadata = application.consumer.consumer_group_metadata()
    transactions = begun(routes)
    routes.natives["P"].answers.set()
    transactions.send_offsets([TopicPartition("Payments", 0, READ)], metadata, 1.0)
    transactions.abort(-1)
    transactions.begin(1.0)
    transactions.send_offsets([TopicPartition("Payments", 0, READ - 1)], metadata, 1.0)
    transactions.commit(-1)

    application.watcher.now = HOLD
    assert application.consumer.poll(0) is None
    assert application.uncommitted == {"Payments-0": 2}


@pytest.mark.parametrize("commits", [False, True])
def test_what_was_not_committed_is_known_before_a_close_in_which_no_query_is_answered(
    config: Config, natives: list[Native], commits: bool
) -> None:
    def commit(consumer: FailoverConsumer, partitions: list[TopicPartition]) -> None:
        if commits:
            consumer.commit(
                offsets=[TopicPartition(one.topic, one.partition, READ) for one in partitions]
            )

    application = Application(config, on_revoke=commit, **{"enable.auto.commit": False})
    native = natives[0]
    native.on_p = False

    def close() -> None:
        native.committed = None
        native.subscribed["on_revoke"](native, [TopicPartition("Payments", 0)])

    native.close, native.committed_offset = close, READ - 1
    application.watcher.now = PLANNED
    assert application.consumer.poll(0) is None
    assert application.uncommitted == {"Payments-0": 1 if commits else 2}


def test_a_planned_hold_in_which_the_cluster_dies_ends_when_it_is_given_up(
    config: Config,
) -> None:
    application = Application(config)
    application.watcher.now = PLANNED
    Native.before_commit = application.tell(HOLD)

    assert application.consumer.poll(0) is None
    assert application.consumer.cluster is None
    assert application.uncommitted == {"Payments-0": READ + 1}


def test_what_a_rebalance_could_not_commit_is_counted(
    config: Config, natives: list[Native]
) -> None:
    """Within its callback no other thread may call the consumer: librdkafka gives up by itself."""
    application = Application(config)
    application.consumer.done(Message(topic="Payments", partition=0, offset=READ))
    threads: list[threading.Thread] = []

    def fail() -> None:
        threads.append(threading.current_thread())
        raise KafkaException(KafkaError(KafkaError._WAIT_COORD))

    Native.before_commit = fail
    natives[0].subscribed["on_revoke"](natives[0], [TopicPartition("Payments", 0)])

    # Another thread would wait for the end of the callback, which waits for that thread.
    assert threads == [threading.current_thread()]

    application.watcher.now = HOLD
    assert application.consumer.poll(0) is None
    assert application.uncommitted == {"Payments-0": READ + 1}
    assert [what for what, _ in application.called] == ["assign", "revoke"]


class Producer:
    """confluent-kafka's transactional producer whose cluster does not answer."""

    def __init__(self, when: Callable[[], None]) -> None:
        self.when = when
        self.calls: list[str] = []
        self.answers = threading.Event()

    def init_transactions(self, _timeout: float) -> None:
        self.calls.append("init")

    def begin_transaction(self) -> None:
        self.calls.append("begin")

    def send_offsets_to_transaction(self, *_: object) -> None: ...

    def commit_transaction(self, _timeout: float) -> None:
        self.when()
        self.answers.wait(DEADLINE_S)
        self.calls.append("commit")

    def abort_transaction(self, _timeout: float) -> None:
        assert self.answers.wait(DEADLINE_S)
        self.calls.append("abort")


class Routes:
    """The producer that transactions belong to, on P until it is told otherwise."""

    def __init__(self) -> None:
        self.natives = {"P": Producer(lambda: None), "B": Producer(lambda: None)}
        self.natives["B"].answers.set()
        self.cluster = "P"
        self.given_up = False

    def give_up(self) -> None:
        self.cluster, self.given_up = "B", True

    def find(self, _timeout_s: float, *, reserve: bool) -> str:
        del reserve
        return self.cluster

    def end(self) -> None: ...

    def on(self, cluster: str) -> Producer:
        return self.natives[cluster]

    def retire(self, cluster: str) -> None:
        if not self.given_up:  # else it was before
            answers = self.natives[cluster].answers
            self.natives[cluster] = Producer(lambda: None)
            self.natives[cluster].answers = answers

    def is_current(self, native: Producer) -> bool:
        return not (self.given_up and native is self.natives["P"])


@pytest.fixture
def routes() -> Routes:
    return Routes()


def begun(routes: Routes) -> Transactions:
    producers: Any = routes
    transactions = Transactions(producers, routes.find, routes.end, "t")
    transactions.init(-1)
    transactions.begin(1.0)
    return transactions


def test_a_commit_under_way_says_that_its_outcome_is_not_known(routes: Routes) -> None:
    transactions = begun(routes)
    routes.natives["P"].when = routes.give_up
    with pytest.raises(KafkaException, match="is unknown") as refused:
        transactions.commit(-1)
    assert refused.value.args[0].txn_requires_abort()

    transactions.abort(-1)  # returns though P does not answer
    transactions.begin(1.0)
    transactions.commit(-1)

    assert routes.natives["B"].calls == ["init", "begin", "commit"]
    routes.natives["P"].answers.set()
    eventually(lambda: routes.natives["P"].calls[2:] == ["commit", "abort"], "P is told at last")


def test_a_producer_that_returns_to_a_cluster_is_a_new_one_there(routes: Routes) -> None:
    """Librdkafka's send_offsets waited for ever on the one of before a restart of P's brokers."""
    transactions, first = begun(routes), routes.natives["P"]
    first.answers.set()
    transactions.commit(-1)
    for cluster in ("B", "P"):
        routes.cluster = cluster
        transactions.begin(1.0)
        transactions.commit(-1)

    assert first.calls == ["init", "begin", "commit"]
    assert routes.natives["P"].calls == ["init", "begin", "commit"]
    assert routes.natives["P"] is not first


def test_a_commit_whose_records_are_dropped_under_it_is_no_other_failure(routes: Routes) -> None:
    """Librdkafka says that messages failed, and what it says then depends on the moment."""

    def drop() -> None:
        routes.give_up()
        raise KafkaException(KafkaError(KafkaError._INCONSISTENT, "1 message failed"))

    transactions = begun(routes)
    routes.natives["P"].when = drop
    with pytest.raises(KafkaException, match="is unknown"):
        transactions.commit(-1)


@pytest.mark.parametrize("call", ["commit", "require_alive", "begin"])
def test_a_transaction_on_a_cluster_that_was_given_up_is_over(routes: Routes, call: str) -> None:
    transactions = begun(routes)
    routes.give_up()
    arguments = {"commit": (-1,), "begin": (1.0,)}.get(call, ())
    with pytest.raises(KafkaException, match="nothing of it was committed") as refused:
        getattr(transactions, call)(*arguments)
    assert refused.value.args[0].txn_requires_abort()
    assert routes.natives["P"].calls == ["init", "begin"]

    transactions.abort(-1)
    assert transactions.cluster is None


def test_a_producer_id_that_is_asked_for_in_vain_is_asked_for_on_the_other_cluster(
    routes: Routes,
) -> None:
    def init(_timeout: float) -> None:
        routes.give_up()
        routes.natives["P"].answers.wait(DEADLINE_S)

    routes.natives["P"].init_transactions = init
    producers: Any = routes
    Transactions(producers, routes.find, routes.end, "t").init(-1)

    assert routes.natives["B"].calls == ["init"]
    routes.natives["P"].answers.set()


def test_records_under_way_are_dropped_with_the_producer_and_a_new_one_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Plain:
        def __init__(self, *_: object, **__: object) -> None:
            self.left = 5

        def __len__(self) -> int:
            return self.left

        def purge(self, *, blocking: bool) -> None:
            assert not blocking
            self.left = 0

        def poll(self, _timeout: float) -> int:
            return 0

    class Settings:
        def on(self, _cluster: str) -> dict[str, Any]:
            return {}

    monkeypatch.setattr("srm.client.cluster_producers.Producer", Plain)
    settings: Any = Settings()
    producers = ClusterProducers(settings, lambda served: served, None, transactional=True)
    first: Any = producers.on("P")

    producers.give_up("P")

    assert first.left == 0
    assert producers.is_given_up("P")
    assert not producers.is_current(first)
    assert producers.on("P") is not first
    assert not producers.is_given_up("P")


def test_the_first_call_of_a_transaction_starts_to_follow_the_routes(config: Config) -> None:
    made = FailoverProducer({"transactional.id": "t"}, watcher=cast("Any", Watcher(config)))
    with pytest.raises(KafkaException):
        made.commit_transaction(0)

    assert made._thread is not None
    made.close()


def test_a_held_producer_says_for_how_long_it_has_written_nothing(config: Config) -> None:
    """By that a move tells it from a plain one that wrote just before the hold."""
    watcher = Watcher(config)
    made = FailoverProducer({}, topics=["busy", "idle"], watcher=cast("Any", watcher))
    made.start()
    eventually(lambda: made.cluster("busy") == made.cluster("idle") == "P", "followed")
    made._deliveries["busy"].in_flight += 1
    made._report_delivery(Record(0, "busy", {}, None, 0.0, "P"), None, None)
    watcher.now = HOLD
    eventually(lambda: made.cluster("busy") is made.cluster("idle") is None, "held")
    made.close()

    held = {ack.subject: ack.ages_ms["written"] for ack in watcher.said if ack.state == "held"}
    assert held["topic:busy"] < held["topic:idle"]
