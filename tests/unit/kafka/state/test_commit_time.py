"""How long the writer of control records asks for a commit."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from srm.config.model import ClusterClients
from srm.engine.cluster_ports import CONTROL_ABORT_S, CONTROL_TRANSACTION_S
from srm.kafka.admin.clients import Clients
from srm.kafka.state import writers


class Recording:
    """A producer that acknowledges everything and notes how long a commit may take."""

    def __init__(self, *_arguments: object, **_named: object) -> None:
        self.commits: list[float] = []
        self._callbacks: list[Callable[..., None]] = []

    def produce(
        self, topic: str, *_record: object, on_delivery: Callable[..., None], **_named: int
    ):
        message = SimpleNamespace(topic=lambda: topic, offset=lambda: 0, timestamp=lambda: (0, 0))
        self._callbacks.append(lambda: on_delivery(None, message))

    def flush(self, _timeout: float) -> int:
        for callback in self._callbacks:
            callback()
        return 0

    def commit_transaction(self, timeout: float) -> None:
        self.commits.append(timeout)

    def __getattr__(self, _name: str) -> Callable[..., None]:
        return lambda *_arguments, **_named: None


def test_no_commit_is_asked_for_when_what_was_checked_before_it_may_be_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A coordinator that returns later takes it, if nobody has aborted the transaction yet."""
    producer = Recording()
    monkeypatch.setattr(writers, "open_writer", lambda *_a, **_n: producer)
    monkeypatch.setattr(writers, "log_ends", lambda _c, places: dict.fromkeys(places, 9))
    servers = {"bootstrap.servers": "nowhere:1"}
    clients = Clients("P", ClusterClients.alike(servers), timeout_s=60)

    writers.KafkaControlWriter(clients, "srm-control-x").write({"T": {b"k": b"v"}})

    (asked,) = producer.commits
    assert asked <= CONTROL_TRANSACTION_S + CONTROL_ABORT_S
