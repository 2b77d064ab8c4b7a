"""Offsets as librdkafka gives them."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID

from srm.domain.names.topics import TopicPartition
from srm.errors import UnavailableError
from srm.kafka.admin.clients import Clients
from srm.kafka.admin.offsets import log_ends, log_starts

PARTITION = TopicPartition("T", 0)


class Answering(Clients):
    """Clients whose admin client gives prepared offsets, one a call."""

    def __init__(self, *offsets: int, timeout_s: float = 20) -> None:
        super().__init__("P", {}, {}, {}, timeout_s)
        self.offsets = list(offsets)

    def admin(self) -> Any:
        def list_offsets(wanted: dict[object, object], **_: object) -> dict[object, Future[object]]:
            future: Future[object] = Future()
            future.set_result(SimpleNamespace(offset=self.offsets.pop(0)))
            return dict.fromkeys(wanted, future)

        return SimpleNamespace(list_offsets=list_offsets)


@pytest.mark.parametrize("ask", [log_starts, log_ends])
def test_an_answer_without_an_offset_is_asked_for_again(ask: Any) -> None:
    """That is what librdkafka makes of a connection that breaks, and no error.

    Taken for a number, a log would seem to end before it begins, and everything to be copied.
    """
    assert ask(Answering(OFFSET_INVALID, 7), [PARTITION]) == {PARTITION: 7}


def test_no_offset_in_time_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("srm.kafka.admin.clients.refusal_of", lambda *_: None)

    with pytest.raises(UnavailableError, match="listing offsets of T-0 on cluster P: no answer"):
        log_ends(Answering(*[OFFSET_INVALID] * 100, timeout_s=0.1), [PARTITION])
