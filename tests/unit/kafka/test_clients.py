"""The clients of a cluster that does not answer."""

from __future__ import annotations

import threading
import time

from srm.errors import UnavailableError
from srm.kafka.clients import Clients
from srm.kafka.compacted import KafkaCompactedTopic
from srm.stack.ports import LOOPBACK, free_port


def test_closing_does_not_wait_for_a_thread_that_waits_for_the_cluster() -> None:
    props = {"bootstrap.servers": f"{LOOPBACK}:{free_port()}"}
    clients = Clients("P", props, props, props, timeout_s=5)
    failures: list[Exception] = []

    def read() -> None:
        try:
            KafkaCompactedTopic(clients, "table", 0).read()
        except UnavailableError as error:
            failures.append(error)

    clients.reader()
    reading = threading.Thread(target=read)
    reading.start()
    while clients.reader_lock.acquire(blocking=False):  # until the thread has it
        clients.reader_lock.release()
        time.sleep(0.01)

    clients.close()
    still_reading = reading.is_alive()
    reading.join(30)

    assert still_reading
    assert failures
