"""Writers of state topics whose coordinator answers a fenced commit with another error."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from srm.config.model import ClusterClients
from srm.domain.flow_state.replication_records import Pause
from srm.domain.names.topics import Flow
from srm.errors import FencedError, UnavailableError
from srm.kafka.admin.clients import Clients
from srm.kafka.state import driver_log, writers
from srm.kafka.state.driver_log import KafkaDriverLog, KafkaFlowSwitch
from srm.kafka.state.writers import KafkaControlWriter

PROPS = ClusterClients.alike({"bootstrap.servers": "127.0.0.1:1"})


class _Coordinated:
    """A producer whose coordinator has one answer to each commit."""

    def __init__(self, code: int) -> None:
        self.code = code

    def commit_transaction(self, _timeout_s: float) -> None:
        raise KafkaException(KafkaError(self.code, "EndTxn commit failed"))

    def __getattr__(self, _name: str) -> Callable[..., int]:
        return lambda *_, **__: 0


def driver() -> None:
    log = KafkaDriverLog(Flow("P", "B"), PROPS)
    log.fence()
    log.publish({b"pause": b"{}"})


def control() -> None:
    KafkaControlWriter(Clients("B", PROPS, 1.0), "srm-control-records").write({"t": {b"k": b"v"}})


@pytest.mark.parametrize("write", [driver, control])
@pytest.mark.parametrize(
    ("code", "raised"),
    [
        (KafkaError.UNKNOWN, FencedError),
        (KafkaError._FATAL, FencedError),
        (KafkaError._FENCED, FencedError),
        (KafkaError.REQUEST_TIMED_OUT, UnavailableError),
        (KafkaError._INCONSISTENT, UnavailableError),  # of records that a frozen leader never took
    ],
)
def test_a_commit_during_a_takeover_counts_as_fenced(
    write: Callable[[], None],
    code: int,
    raised: type[Exception],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Kafka 4.3 answers UNKNOWN while the epoch of the transactional id is raised."""
    for module in (driver_log, writers):
        monkeypatch.setattr(module, "open_writer", lambda *_: _Coordinated(code))

    with pytest.raises(raised):
        write()


def test_a_flow_is_paused_though_its_first_leader_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A move does not end because a broker that was just elected is not ready yet."""
    lost = [UnavailableError("OFFSET_NOT_AVAILABLE")] * 2

    def pause(*_: object) -> None:
        if lost:
            raise lost.pop()

    target = SimpleNamespace(topics=lambda: ["__srm-replication.P"])
    switch = KafkaFlowSwitch(Flow("P", "B"), target, PROPS)  # type: ignore[arg-type]
    monkeypatch.setattr(driver_log.pausing, "pause", pause)

    with pytest.raises(UnavailableError, match="OFFSET_NOT_AVAILABLE"):
        switch.pause(Pause("", "me", "P is lost", 1))  # twice in a row: the cluster is lost
    lost.append(UnavailableError("OFFSET_NOT_AVAILABLE"))
    switch.pause(Pause("", "me", "P is lost", 1))

    assert not lost
