"""Tables that are followed are what the log holds now, whatever becomes of log and reader."""

from __future__ import annotations

import json
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final, cast

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, KafkaError
from tests.waiting import eventually

from srm.config.model import ClusterClients
from srm.domain.names.topics import TopicPartition
from srm.engine.cluster_ports import Stamped, TopicDescription
from srm.errors import AuthorizationError, UnavailableError
from srm.kafka.admin.clients import Clients
from srm.kafka.tables import compacted
from srm.kafka.tables.compacted import LiveTable, LiveTables

TOPIC: Final = "srm-table"
_REFUSED: Final = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
_END: Final = KafkaError(KafkaError._PARTITION_EOF)


@dataclass(frozen=True)
class Taken:
    """What a consumer hands out: a record, or the end of a partition."""

    at: int
    pair: tuple[bytes, bytes | None] | None
    refusal: KafkaError | None = None

    def topic(self) -> str:
        return TOPIC

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.at

    def error(self) -> KafkaError | None:
        return self.refusal or (None if self.pair else _END)

    def key(self) -> bytes | None:
        return self.pair[0] if self.pair else None

    def value(self) -> bytes | None:
        return self.pair[1] if self.pair else None

    def timestamp(self) -> tuple[int, int]:
        return TIMESTAMP_CREATE_TIME, self.at


@dataclass
class Log:
    """A log of one partition; ``broken`` is raised by the next call of any reader.

    So many ``hidden`` answers lack the topic; ``described`` counts all. While it ``refuses`` all
    readers are told so; while it is ``silent`` nobody hears anything.
    """

    records: list[tuple[bytes, bytes | None]] = field(default_factory=list)
    topic_id: str = "first"
    broken: list[Exception] = field(default_factory=list)
    opened: int = 0
    assigned: int = 0
    described: int = 0
    hidden: float = 0
    refuses: bool = False
    silent: bool = False

    def describe(self, _clients: Clients, names: set[str]) -> dict[str, TopicDescription]:
        self.described += 1
        if self.hidden:
            self.hidden -= 1
            return {}
        return {name: TopicDescription(name, self.topic_id, 1) for name in names}


class Reader:
    """Reads the log as librdkafka does: below an end that has moved it begins anew."""

    log: Log

    def __init__(self, *_: object, **__: object) -> None:
        self.log.opened += 1
        self.next: int | None = None
        self.told = -1

    def incremental_assign(self, _: object) -> None:
        self.next, self.told = 0, -1
        self.log.assigned += 1

    def incremental_unassign(self, _: object) -> None:
        self.next = None

    def poll(self, wait_s: float) -> Taken | None:
        if self.log.broken:
            raise self.log.broken.pop()
        if self.log.refuses and self.next is not None:
            self.next = None
            return Taken(0, None, _REFUSED)
        if self.log.silent:
            threading.Event().wait(0.005)
            return None
        if self.next is not None and self.next > len(self.log.records):
            self.next = 0  # auto.offset.reset
        if self.next is not None and self.next < len(self.log.records):
            self.next += 1
            return Taken(self.next - 1, self.log.records[self.next - 1])
        if self.next is not None and self.told != self.next:
            self.told = self.next
            return Taken(self.next, None)
        threading.Event().wait(min(wait_s, 0.005))
        return None

    def consume(self, _count: int, _wait_s: float) -> list[Taken]:
        return []

    def close(self) -> None: ...


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    made = Log([(b"a", b"1"), (b"b", b"2")])
    monkeypatch.setattr(compacted, "open_reader", type("Reads", (Reader,), {"log": made}))
    monkeypatch.setattr(compacted, "describe", made.describe)
    monkeypatch.setattr(compacted, "_AGAIN_S", 0.0)
    monkeypatch.setattr(compacted, "_LOOK_S", 0.01)
    return made


@pytest.fixture
def tables(log: Log) -> Iterator[LiveTables]:
    assert log.opened == 0
    with closing(LiveTables(Clients("B", ClusterClients.alike({}), timeout_s=10.0))) as made:
        yield made


def shows(tables: LiveTables, **wanted: bytes) -> None:
    table, rows = tables.table(TOPIC), {key.encode(): value for key, value in wanted.items()}
    eventually(lambda: table.read() == rows, f"{rows} in the table")


def test_a_table_follows_its_topic(log: Log, tables: LiveTables) -> None:
    shows(tables, a=b"1", b=b"2")
    log.records += [(b"a", None), (b"b", b"3")]
    shows(tables, b=b"3")


def test_documents_of_past_moves_take_a_tenth_of_their_size_in_memory(
    log: Log, tables: LiveTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver keeps those of both clusters, for each flow, as long as the topic does."""
    plan = json.dumps([{"group": f"g-{n}", "offset": n} for n in range(100_000)]).encode()
    log.records = [(b"plan", plan)]
    # A client makes bytes of its own of each message.
    monkeypatch.setattr(compacted, "row_of", lambda _: Stamped(plan[:-1] + b"]", 1))
    tracemalloc.start()
    try:
        shows(tables, plan=plan)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < len(plan) / 5


def test_a_topic_that_was_created_again_begins_again(log: Log, tables: LiveTables) -> None:
    shows(tables, a=b"1", b=b"2")
    log.topic_id, log.records = "second", [(b"c", b"1"), (b"d", b"1"), (b"e", b"1")]
    shows(tables, c=b"1", d=b"1", e=b"1")


def test_what_a_log_has_lost_is_lost_in_the_table_too(log: Log, tables: LiveTables) -> None:
    """The new leader never had the last record: nobody ever writes a tombstone for its key."""
    log.records.append((b"c", b"lost"))
    shows(tables, a=b"1", b=b"2", c=b"lost")
    del log.records[2:]
    shows(tables, a=b"1", b=b"2")


@pytest.mark.parametrize("error", [TypeError("not expected"), UnavailableError("gone")])
def test_a_reader_that_fails_is_replaced(log: Log, tables: LiveTables, error: Exception) -> None:
    shows(tables, a=b"1", b=b"2")
    log.broken.append(error)
    eventually(lambda: log.opened == 2, "another reader")
    log.records.append((b"c", b"3"))
    shows(tables, a=b"1", b=b"2", c=b"3")


def test_a_topic_that_one_answer_lacks_is_not_gone(log: Log, tables: LiveTables) -> None:
    """A broker in the middle of its start does not know all topics yet."""
    shows(tables, a=b"1", b=b"2")
    before, log.hidden = log.described, 1
    eventually(lambda: log.described > before + 3, "more answers")
    log.records.append((b"c", b"3"))
    shows(tables, a=b"1", b=b"2", c=b"3")

    assert log.assigned == 1, "nothing was read again"


def test_a_topic_that_the_first_answer_lacks_is_not_taken_for_empty(
    log: Log, tables: LiveTables
) -> None:
    """A broker that is behind the controller: what is there would be told to be nothing."""
    log.hidden = 1

    assert tables.table(TOPIC).read() == {b"a": b"1", b"b": b"2"}


def test_a_topic_that_no_answer_knows_any_more_is_gone(log: Log, tables: LiveTables) -> None:
    shows(tables, a=b"1", b=b"2")
    log.hidden = float("inf")
    shows(tables)
    log.topic_id, log.hidden = "second", 0
    shows(tables, a=b"1", b=b"2")


def test_a_topic_that_goes_while_its_reader_is_replaced_is_gone(
    log: Log, tables: LiveTables
) -> None:
    shows(tables, a=b"1", b=b"2")
    log.hidden = float("inf")
    log.broken.append(TypeError("not expected"))
    eventually(lambda: log.opened == 2, "another reader")
    shows(tables)


def test_a_table_that_may_not_be_read_shows_nothing_until_it_was_read_again(
    log: Log, tables: LiveTables
) -> None:
    shows(tables, a=b"1", b=b"2")
    table = tables.table(TOPIC)
    log.refuses = True
    eventually(lambda: _is_refused(table), "a refusal")
    log.records[:] = [(b"c", b"3")]
    log.silent, log.refuses, before = True, False, log.assigned
    eventually(lambda: log.assigned > before, "another try")
    assert _is_refused(table)

    log.silent = False
    eventually(lambda: not _is_refused(table), "the end of the log")
    assert table.read() == {b"c": b"3"}


def _is_refused(table: LiveTable) -> bool:
    try:
        table.read()
    except AuthorizationError:
        return True
    return False


class Picky:
    """A sink that cannot stand what it was not made for."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.ended = threading.Event()

    def begin(self) -> None:
        self.taken = []

    def take(self, key: bytes, row: Stamped | None) -> None:
        assert row is not None
        self.taken.append(key)

    def end(self) -> None:
        self.ended.set()


def test_a_record_that_one_sink_cannot_stand_keeps_nobody_from_reading_on(
    log: Log, tables: LiveTables
) -> None:
    log.records[:0] = [(b"x", None)]
    picky = Picky()

    tables.follow(TOPIC, cast("Any", picky))

    eventually(picky.ended.is_set, "the end of the log")
    assert picky.taken == [b"a", b"b"]
    assert log.opened == 1


def test_a_fresh_table_that_is_read_again_shows_nothing_before_its_end(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records that were read are not in the table yet: the rows are those of before."""
    monkeypatch.setattr(compacted, "log_ends", lambda _, places: {places[0]: 2})
    tables = LiveTables(Clients("B", ClusterClients.alike({}), timeout_s=0.05), fresh=True)
    one = tables._followed[TOPIC, 0] = compacted._Followed(compacted._Rows())
    one.begin("")
    one.begin("first")
    for number, pair in enumerate(log.records):
        tables._take(cast("Any", Taken(number, pair)))
    with pytest.raises(UnavailableError, match="its end was not reached"):
        tables.table(TOPIC).read()

    tables._take(cast("Any", Taken(2, None)))

    assert tables.table(TOPIC).read() == {b"a": b"1", b"b": b"2"}


def test_a_fresh_table_is_followed_from_its_first_read_on_and_read_to_its_end(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    def log_ends(_: Clients, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(places, len(log.records))

    monkeypatch.setattr(compacted, "log_ends", log_ends)
    with closing(
        LiveTables(Clients("B", ClusterClients.alike({}), timeout_s=10.0), fresh=True)
    ) as tables:
        table = tables.table(TOPIC)
        assert log.opened == 0, "as one that is only written, or read at some offsets"
        assert table.read() == {b"a": b"1", b"b": b"2"}
        for number in range(20):
            log.records.append((b"a", b"%d" % number))
            assert table.read()[b"a"] == b"%d" % number, "as soon as it is written"
        assert log.assigned == 1
