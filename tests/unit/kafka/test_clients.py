"""The clients of a cluster that does not answer."""

from __future__ import annotations

import threading

import pytest
from tests.waiting import DEADLINE_S

from srm.errors import UnavailableError
from srm.kafka.clients import Clients
from srm.kafka.compacted import KafkaCompactedTopic
from srm.stack.ports import LOOPBACK, free_port


@pytest.fixture
def clients() -> Clients:
    props = {"bootstrap.servers": f"{LOOPBACK}:{free_port()}"}
    return Clients("P", props, props, props, timeout_s=1)


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


def test_who_waits_for_the_cluster_in_vain_is_told(clients: Clients) -> None:
    with pytest.raises(UnavailableError):
        KafkaCompactedTopic(clients, "table", 0).read()
    clients.close()
