"""What every implementation of the CompactedTopic port promises."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from tests.overrides import overrides

from srm.domain.moves.announcements import Ack
from srm.domain.names import internal_topics
from srm.engine.cluster_ports import TopicSpec
from srm.engine.control.control_topics import STAMPED, ensure_compacted
from srm.engine.moves.history import ClientsHistory
from srm.errors import NotFoundError, UsageError


@pytest.fixture
def state_topic(site, unique):
    ensure_compacted(site.cluster, unique, partitions=2)
    return unique


def test_a_topic_that_does_not_exist_reads_empty_and_is_not_created(site, unique):
    assert site.cluster.compacted_topic(unique).read() == {}
    assert unique not in site.cluster.topics()


def test_a_partition_that_does_not_exist_reads_empty(site, state_topic):
    assert site.cluster.compacted_topic(state_topic, 7).read() == {}


def test_an_empty_topic_reads_empty(site, state_topic):
    assert site.cluster.compacted_topic(state_topic).read() == {}


def test_the_latest_value_of_each_key_is_read(site, state_topic):
    table = site.cluster.compacted_topic(state_topic)

    table.write({b"a": b"1", b"b": b"1"})
    table.write({b"a": b"2", b"c": b""})

    assert table.read() == {b"a": b"2", b"b": b"1", b"c": b""}


def test_a_tombstone_removes_the_row_and_a_later_value_brings_it_back(site, state_topic):
    table = site.cluster.compacted_topic(state_topic)
    table.write({b"a": b"1", b"b": b"1"})

    table.write({b"a": None, b"never": None})
    assert table.read() == {b"b": b"1"}

    table.write({b"a": b"2"})
    assert table.read() == {b"b": b"1", b"a": b"2"}


def test_rows_are_read_in_the_order_in_which_they_were_last_written(site, state_topic):
    table = site.cluster.compacted_topic(state_topic)

    table.write({b"c": b"1", b"a": b"1", b"b": b"1"})
    table.write({b"c": b"2"})

    assert list(table.read()) == [b"a", b"b", b"c"]


def test_partitions_are_tables_of_their_own(site, state_topic):
    site.cluster.compacted_topic(state_topic, 0).write({b"a": b"0"})
    site.cluster.compacted_topic(state_topic, 1).write({b"a": b"1"})

    assert site.cluster.compacted_topic(state_topic, 0).read() == {b"a": b"0"}
    assert site.cluster.compacted_topic(state_topic, 1).read() == {b"a": b"1"}


def test_announcements_of_clients_are_read_from_all_partitions(site, monkeypatch, unique):
    monkeypatch.setattr(internal_topics, "CLIENTS", unique)
    ensure_compacted(site.cluster, unique, partitions=3, extra_configs=STAMPED)
    said = [Ack("group:g", client, 1, "held", "P", 0) for client in "abc"]
    for number, ack in enumerate(said):
        site.cluster.compacted_topic(unique, number).write({ack.key(): ack.value()})
    last = replace(said[2], generation=2)
    site.cluster.compacted_topic(unique, 2).write({last.key(): last.value()})

    found, past = ClientsHistory.read(site.cluster), ClientsHistory.read_all(site.cluster)

    assert [one.ack for one in found.acks] == [*said[:2], last]
    assert past.acks == found.acks
    assert sorted(one.ack.generation for one in past.messages()) == [1, 1, 1, 2]
    assert all(one.by_broker and one.stamped_ms <= found.newest_ms for one in found.acks)


def test_a_table_can_be_read_and_written_through_several_handles(site, state_topic):
    site.cluster.compacted_topic(state_topic).write({b"a": b"1"})

    assert site.cluster.compacted_topic(state_topic).read() == {b"a": b"1"}


def test_a_table_of_many_rows_is_read_whole(site, state_topic):
    rows = {f"key-{n}".encode(): f"value-{n}".encode() for n in range(20_000)}

    site.cluster.compacted_topic(state_topic).write(rows)

    assert site.cluster.compacted_topic(state_topic).read() == rows


def test_writing_nothing_is_fine_even_without_a_topic(site, unique):
    site.cluster.compacted_topic(unique).write({})

    assert unique not in site.cluster.topics()


def test_writing_to_a_topic_that_does_not_exist_fails_and_does_not_create_it(site, unique):
    with pytest.raises(NotFoundError, match=unique):
        site.cluster.compacted_topic(unique).write({b"a": b"1"})

    assert unique not in site.cluster.topics()


def test_after_a_failed_write_the_next_one_works(site, state_topic, unique):
    with pytest.raises(NotFoundError):
        site.cluster.compacted_topic(f"{unique}-no").write({b"a": b"1"})

    site.cluster.compacted_topic(state_topic).write({b"a": b"1"})

    assert site.cluster.compacted_topic(state_topic).read() == {b"a": b"1"}


def test_a_record_of_more_than_a_megabyte_is_refused_however_well_it_compresses(site, state_topic):
    table = site.cluster.compacted_topic(state_topic)
    table.write({b"a": b"0" * 999_963})

    with pytest.raises(UsageError, match="Message size too large"):
        table.write({b"a": b"0" * 999_964})

    table.write({b"b": b"1"})
    assert {key: len(value) for key, value in table.read().items()} == {b"a": 999_963, b"b": 1}


def test_ensuring_a_compacted_topic_creates_it_with_small_segments(site, unique):
    """The active segment is never compacted, and every reader reads it."""
    ensure_compacted(site.cluster, unique, partitions=3, extra_configs={"segment.ms": "1234"})

    configs = overrides(site.cluster, [unique])[unique]
    assert site.cluster.topics()[unique].partitions == 3
    assert configs["cleanup.policy"] == "compact"
    assert configs["segment.ms"] == "1234"
    assert int(configs["segment.bytes"]) <= 64 << 20


def test_ensuring_again_changes_nothing(site, unique):
    ensure_compacted(site.cluster, unique)
    site.cluster.alter_topic_configs({unique: {"segment.ms": "99999"}})
    before = overrides(site.cluster, [unique])

    ensure_compacted(site.cluster, unique, partitions=4)

    assert overrides(site.cluster, [unique]) == before
    assert site.cluster.topics()[unique].partitions == 1


def test_a_state_topic_that_would_be_deleted_by_time_is_repaired(site, unique):
    """Somebody created it by hand, or the broker did it by itself."""
    site.cluster.create_topics([TopicSpec(unique, 1, 1, {"retention.ms": "1000"})])

    ensure_compacted(site.cluster, unique)

    assert overrides(site.cluster, [unique]) == {
        unique: {"cleanup.policy": "compact", "retention.ms": "1000"}
    }


def test_racing_creators_all_succeed(site, unique):
    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(ensure_compacted, site.cluster, unique) for _ in range(8)]:
            future.result()

    assert site.cluster.topics()[unique].partitions == 1


def test_threads_may_read_and_write_at_once(site, state_topic):
    def work(number: int) -> dict[bytes, bytes]:
        table = site.cluster.compacted_topic(state_topic, number % 2)
        table.write({f"row-{number}".encode(): b"x"})
        return table.read()

    with ThreadPoolExecutor(4) as pool:
        seen = list(pool.map(work, range(16)))

    for number, table in enumerate(seen):
        assert f"row-{number}".encode() in table


def test_a_write_says_when_it_was_by_the_clock_of_the_broker(site, unique):
    """A topic that keeps its writers' clocks says nothing of the broker's."""
    for name, kind in ((f"{unique}-b", "LogAppendTime"), (f"{unique}-w", "CreateTime")):
        ensure_compacted(site.cluster, name, extra_configs={"message.timestamp.type": kind})
    brokers = site.cluster.compacted_topic(f"{unique}-b")
    writers = site.cluster.compacted_topic(f"{unique}-w")

    stamp = brokers.write({b"a": b"1", b"b": b"1"})
    row = brokers.read_stamped()[b"b"]
    assert (row.timestamp_ms, row.by_broker) == (stamp, True)
    assert writers.write({b"a": b"1"}) is None
    assert not writers.read_stamped()[b"a"].by_broker
    assert brokers.write({}) is None


def test_single_records_are_read_by_their_places(site, state_topic):
    table = site.cluster.compacted_topic(state_topic, 1)
    table.write({f"k{n}".encode(): f"v{n}".encode() for n in range(3000)})
    table.write({b"k5": None, b"k7": b"again"})

    assert table.at([1, 5, 2999, 3000, 3001]) == {
        1: (b"k1", b"v1"),
        5: (b"k5", b"v5"),
        2999: (b"k2999", b"v2999"),
        3000: (b"k5", None),
        3001: (b"k7", b"again"),
    }
    scattered = range(0, 3000, 3)
    assert table.at(scattered) == {n: (f"k{n}".encode(), f"v{n}".encode()) for n in scattered}


def test_places_where_nothing_stands_are_left_out(site, state_topic, unique):
    table = site.cluster.compacted_topic(state_topic)
    assert table.at([0, 3]) == {}
    table.write({b"a": b"1", b"b": b"2", b"c": b"3"})
    site.cluster.alter_topic_configs({state_topic: {"cleanup.policy": "compact,delete"}})
    site.trim(state_topic, 0, 2)

    assert table.at([-1, 0, 1, 2, 3, 4, 2000]) == {2: (b"c", b"3")}
    assert table.at([]) == {}
    assert site.cluster.compacted_topic(state_topic, 7).at([0]) == {}
    assert site.cluster.compacted_topic(unique + "-no").at([0]) == {}
    assert unique + "-no" not in site.cluster.topics()
