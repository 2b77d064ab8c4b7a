"""The clients of a cluster that does not answer."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from itertools import groupby

import pytest
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient
from tests.waiting import DEADLINE_S

from srm import patience
from srm.config.model import ClusterClients
from srm.errors import GivenUpError, UnavailableError
from srm.kafka.admin import clients as module
from srm.kafka.admin.clients import Clients, answer_of, open_reader, open_writer
from srm.kafka.admin.cluster_facts import broker_configs
from srm.kafka.state.writers import KafkaControlWriter
from srm.kafka.tables.compacted import KafkaCompactedTopic
from srm.threads import fulfil
from srm_lab.stack.process import LOOPBACK, free_port


@pytest.fixture
def clients() -> Clients:
    props = {"bootstrap.servers": f"{LOOPBACK}:{free_port()}"}
    return Clients("P", ClusterClients.alike(props), timeout_s=1)


@pytest.mark.parametrize(
    ("state", "tries", "limits", "said"),
    [
        ("lost", 1, [3, 7, 7], ["lost"] * 3),
        ("believed", 1, [3], ["lost"] * 3),
        ("slow", 3, [3, 3, 3], ["late"] * 3),
        ("back", 3, [3, 7, 3, 3], ["lost", "late", "late"]),
    ],
)
def test_only_a_cluster_that_is_lost_costs_a_command_the_time_of_one_request(
    monkeypatch: pytest.MonkeyPatch, state: str, tries: int, limits: list[float], said: list[str]
) -> None:
    """A refusal counts for some seconds; then a request gets the limit of a first answer."""
    given: list[float] = []
    tried: list[float] = []

    def refusals(_clusters: object, limit_s: float) -> list[UnavailableError | None]:
        given.append(limit_s)
        answers = state == "slow" or (state == "back" and len(given) > 1)
        return [None if answers else UnavailableError("lost")]

    def request(limit_s: float) -> None:
        tried.append(limit_s)
        raise UnavailableError("late")

    monkeypatch.setattr(module, "refusals_of", refusals)
    monkeypatch.setattr(patience, "_BELIEVED_S", 60.0 if state == "believed" else 0.0)
    props = ClusterClients.alike({"bootstrap.servers": "P:1"})
    with patience.limit(7) as limit:
        first, second = (Clients("P", props, timeout_s=0) for _ in range(2))
        limit.note(("P", "P:1"), None)
    texts: list[str] = []
    for clients in (first, first, second):
        with pytest.raises(UnavailableError) as raised:
            clients.call("describing", request)
        texts.append(str(raised.value))

    assert (len(tried), given, texts) == (tries, limits, said)


@pytest.mark.parametrize("is_alive", [True, False])
def test_a_look_waits_for_a_cluster_that_is_slow_and_not_for_one_that_died_during_it(
    monkeypatch: pytest.MonkeyPatch, *, is_alive: bool
) -> None:
    """Offsets of thousands of groups take a slow cluster longer than a first answer."""
    given: list[float] = []

    def request(limit_s: float) -> str:
        given.append(limit_s)
        if limit_s < 10:
            raise UnavailableError("late")
        return "found"

    refusal = None if is_alive else UnavailableError("lost")
    monkeypatch.setattr(module, "refusals_of", lambda *_: [refusal])
    props = ClusterClients.alike({"bootstrap.servers": "P:1"})
    with patience.limit(7) as limit:
        clients = Clients("P", props, timeout_s=30, recheck_s=0)
        limit.note(("P", "P:1"), None)

    if is_alive:
        assert [clients.call("describing", request) for _ in range(2)] == ["found"] * 2
        assert [round(limit_s) for limit_s in given] == [1, 15, 15]  # it is checked once
    else:
        with pytest.raises(GivenUpError, match="lost"):
            clients.call("describing", request)


@pytest.mark.parametrize(
    "wait",
    [
        lambda clients: KafkaCompactedTopic(clients, "table", 0).read(),
        lambda clients: KafkaCompactedTopic(clients, "table", 0).write({b"k": b"v"}),
        lambda clients: KafkaControlWriter(clients, "srm-control-records"),
        broker_configs,
    ],
    ids=["read", "write", "take over", "broker settings"],
)
def test_who_waited_in_vain_gives_the_next_one_the_limit_of_a_first_answer(
    monkeypatch: pytest.MonkeyPatch, wait: Callable[[Clients], object]
) -> None:
    limits: list[float] = []

    def refusals(_clusters: object, limit_s: float) -> list[UnavailableError]:
        limits.append(limit_s)
        return [UnavailableError("lost")]

    monkeypatch.setattr(module, "refusals_of", refusals)
    props = {"bootstrap.servers": f"{LOOPBACK}:{free_port()}"}
    monkeypatch.setattr(patience, "_BELIEVED_S", 0.0)
    with patience.limit(7) as limit:
        clients = Clients("P", ClusterClients.alike(props), timeout_s=0.2)
        limit.note(("P", props["bootstrap.servers"]), None)
    for _ in range(2):
        with pytest.raises(UnavailableError, match="lost"):
            wait(clients)
    clients.close()

    # A read whose time is over on a busy host queries the cluster once more for each of its steps.
    assert [each for each, _ in groupby(limits)] == [3, 7]


def test_a_command_that_has_not_heard_of_a_cluster_begins_with_the_limit_of_a_first_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The replicator opens flows whatever the state of their clusters."""
    monkeypatch.setattr(module, "refusals_of", lambda _, limit_s: [UnavailableError(f"{limit_s}")])
    with patience.limit(7):
        clients = Clients("P", ClusterClients.alike({"bootstrap.servers": "P:1"}))

    with pytest.raises(GivenUpError, match=r"^7$"):
        clients.call("describing", lambda _: pytest.fail("a request"))


def test_closing_does_not_wait_for_a_thread_that_waits_for_the_cluster(clients: Clients) -> None:
    reads, has_answer = threading.Event(), threading.Event()

    def read() -> None:
        with clients.reader_lock:
            reads.set()
            has_answer.wait()

    clients.reader()
    reading = threading.Thread(target=read)
    closing = threading.Thread(target=clients.close)
    reading.start()
    reads.wait()
    closing.start()
    closing.join(DEADLINE_S)
    waits = closing.is_alive()
    has_answer.set()
    reading.join(DEADLINE_S)
    closing.join(DEADLINE_S)

    assert not waits


def test_a_read_that_hangs_keeps_no_later_one_from_the_limit_of_a_first_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The release of a hold waited until the last look of the move had ended."""
    monkeypatch.setattr(module, "refusals_of", lambda _, limit_s: [UnavailableError(f"{limit_s}")])
    later = Future[object]()
    with patience.limit(7):
        clients = Clients("P", ClusterClients.alike({"bootstrap.servers": "P:1"}))
    read = KafkaCompactedTopic(clients, "table", 0).read

    with clients.reader_lock:
        threading.Thread(target=fulfil, args=(later, read)).start()
        error = later.exception(DEADLINE_S)

    assert isinstance(error, GivenUpError)


def test_who_waits_for_the_cluster_in_vain_is_told(clients: Clients) -> None:
    with pytest.raises(UnavailableError):
        KafkaCompactedTopic(clients, "table", 0).read()
    clients.close()


def test_a_client_that_another_thread_discards_ends_no_request_under_way(clients: Clients) -> None:
    with socket.create_server((LOOPBACK, 0)) as silent:
        props = {"bootstrap.servers": f"{LOOPBACK}:{silent.getsockname()[1]}"}
        clients = Clients("P", ClusterClients.alike(props), timeout_s=1)
        told: list[Exception | None] = []

        def request(limit_s: float) -> None:
            asked = clients.admin().describe_topics(TopicCollection(["t"]), request_timeout=limit_s)
            discarding = threading.Thread(target=clients.discard_admin)
            discarding.start()
            discarding.join()
            told.append(asked["t"].exception(DEADLINE_S))

        clients.call("describing", request)

    assert "_TIMED_OUT" in str(told[0])  # not _DESTROY: it had all of its time
    clients.close()


def test_no_client_outlives_what_was_asked_of_it(clients: Clients) -> None:
    asked: list[AdminClient] = []
    clients.call("asking", lambda _limit_s: asked.append(clients.admin()))
    clients.discard_admin()

    assert sys.getrefcount(asked[0]) == sys.getrefcount(object()) + 1  # the list's
    clients.close()


def test_a_request_timeout_longer_than_a_transaction_keeps_no_writer_from_opening() -> None:
    """30 s is Kafka's own default, which many files of MirrorMaker 2 name."""
    props = {"bootstrap.servers": f"{LOOPBACK}:{free_port()}", "socket.timeout.ms": "30000"}

    open_writer(props, {"transactional.id": "srm", "transaction.timeout.ms": 5000})


@pytest.mark.parametrize(
    "setting",
    [
        *("retries=0", "max.in.flight=10", "linger.ms=5000", "batch.size=0", "acks=0"),
        *("message.max.bytes=2147483647", "enable.idempotence=false"),
    ],
)
def test_a_setting_of_producers_that_copy_keeps_no_writer_from_opening(setting: str) -> None:
    """MirrorMaker 2 runs with each of them; srm's moves and its driver failed at their start."""
    name, _, value = setting.partition("=")
    props = {"bootstrap.servers": f"{LOOPBACK}:{free_port()}", name: value}

    open_writer(props)
    open_writer(props, {"transactional.id": "srm", "transaction.timeout.ms": 5000})


@pytest.mark.parametrize(
    "setting", ["session.timeout.ms=600000", "max.poll.interval.ms=10000", "fetch.max.bytes=1"]
)
def test_a_setting_of_consumers_that_copy_keeps_no_reader_from_opening(setting: str) -> None:
    name, _, value = setting.partition("=")

    open_reader({"bootstrap.servers": f"{LOOPBACK}:{free_port()}", name: value}).close()


def test_an_answer_that_never_comes_is_not_waited_for_for_good(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_OVERDUE_S", 0.01)

    with pytest.raises(UnavailableError, match="never got its answer"):
        answer_of(Future[None](), 0.01)
