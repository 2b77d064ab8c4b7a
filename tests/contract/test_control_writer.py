"""What every implementation of the ControlWriter port promises: a cluster as a serialised register.

Each test is about two processes that write control records, one of which comes too late.
"""

from __future__ import annotations

import random
import time

import pytest
from tests.waiting import eventually

from srm.domain.text.documents import join, split
from srm.engine.cluster_ports import TopicSpec
from srm.engine.control.control_topics import ensure_compacted
from srm.errors import ConflictError, FencedError, NotFoundError, UsageError


@pytest.fixture
def moves(site, unique):
    ensure_compacted(site.cluster, f"{unique}-moves")
    return f"{unique}-moves"


@pytest.fixture
def routes(site, unique):
    ensure_compacted(site.cluster, f"{unique}-routes")
    return f"{unique}-routes"


@pytest.fixture
def opened(site, unique):
    """Open the writer of this test once more, as another process would."""
    writers = []

    def open_one():
        writers.append(site.cluster.control_writer(f"srm-control-{unique}"))
        return writers[-1]

    yield open_one
    for writer in writers:
        writer.close()


def test_records_of_both_topics_are_written_at_once(site, moves, routes, opened):
    opened().write({moves: {b"m": b"1", b"n": b"1"}, routes: {b"r": b"1"}})

    assert site.cluster.compacted_topic(moves).read() == {b"m": b"1", b"n": b"1"}
    assert site.cluster.compacted_topic(routes).read() == {b"r": b"1"}


def test_a_writer_may_write_again_and_delete(site, moves, opened):
    writer = opened()
    writer.write({moves: {b"m": b"1", b"n": b"1"}})
    writer.write({moves: {b"m": b"2", b"n": None}})

    assert site.cluster.compacted_topic(moves).read() == {b"m": b"2"}


def test_a_write_says_when_it_was_by_the_clock_of_the_broker(site, moves, unique, opened):
    stamped = f"{unique}-stamped"
    ensure_compacted(
        site.cluster, stamped, extra_configs={"message.timestamp.type": "LogAppendTime"}
    )

    stamps = opened().write({moves: {b"m": b"1"}, stamped: {b"r": b"1"}})

    opened()  # from now on everybody sees what was committed
    assert stamps == {
        stamped: site.cluster.compacted_topic(stamped).read_stamped()[b"r"].timestamp_ms
    }


def test_writing_nothing_is_fine(opened, unique):
    opened().write({})
    opened().write({f"{unique}-no": {}})


def test_an_older_opener_is_shut_out(site, moves, opened):
    older = opened()
    newer = opened()

    with pytest.raises(FencedError, match="newer"):
        older.write({moves: {b"m": b"old"}})
    newer.write({moves: {b"m": b"new"}})
    assert site.cluster.compacted_topic(moves).read() == {b"m": b"new"}


def test_a_paused_one_that_wakes_after_a_newer_was_opened_cannot_commit(
    site, moves, routes, opened
):
    older = opened()

    def pause() -> None:
        newer = opened()
        assert site.cluster.compacted_topic(moves).read() == {}, "what the older one began was seen"
        newer.write({moves: {b"m": b"new"}})

    with pytest.raises(FencedError):
        older.write({moves: {b"m": b"old"}, routes: {b"r": b"old"}}, before_commit=pause)

    assert site.cluster.compacted_topic(moves).read() == {b"m": b"new"}
    assert site.cluster.compacted_topic(routes).read() == {}


def test_after_opening_reads_see_everything_that_was_committed_before(site, moves, opened):
    for number in range(5):
        writer = opened()
        table = site.cluster.compacted_topic(moves).read()
        assert table == ({b"m": str(number - 1).encode()} if number else {})
        writer.write({moves: {b"m": str(number).encode()}})


def test_what_a_check_before_the_commit_refuses_is_not_written(site, moves, routes, opened):
    writer = opened()

    def refuse() -> None:
        raise ConflictError("too late")

    with pytest.raises(ConflictError, match="too late"):
        writer.write({moves: {b"m": b"1"}, routes: {b"r": b"1"}}, before_commit=refuse)
    assert site.cluster.compacted_topic(moves).read() == {}

    writer.write({moves: {b"m": b"2"}})
    assert site.cluster.compacted_topic(moves).read() == {b"m": b"2"}


def test_writers_of_other_ids_are_left_alone(site, moves, opened, unique):
    ours = opened()
    others = site.cluster.control_writer(f"srm-control-{unique}-other")

    ours.write({moves: {b"m": b"1"}})
    others.write({moves: {b"n": b"1"}})
    others.close()

    assert site.cluster.compacted_topic(moves).read() == {b"m": b"1", b"n": b"1"}


def test_a_topic_that_does_not_exist_is_named_and_nothing_is_written(site, moves, opened, unique):
    with pytest.raises(NotFoundError, match=f"{unique}-no"):
        opened().write({moves: {b"m": b"1"}, f"{unique}-no": {b"r": b"1"}})

    opened()
    assert site.cluster.compacted_topic(moves).read() == {}
    assert f"{unique}-no" not in site.cluster.topics()


def test_a_document_that_is_too_large_for_a_record_is_written_in_parts(site, moves, opened):
    """Bytes that do not compress: a plan of 100 000 places."""
    plan = random.Random(1).randbytes(3_000_000)
    with pytest.raises(UsageError, match="size too large"):
        opened().write({moves: {b"m": plan}})

    for text in (plan, plan[:2_000_000], b"{}", plan):
        opened().write({moves: split(b"m", text)})
        assert join(site.cluster.compacted_topic(moves).read()) == {b"m": text}


def test_all_values_of_a_key_are_read_until_its_tombstone(site, moves, opened):
    table = site.cluster.compacted_topic(moves)
    for value in (b"0", None, b"1", b"2"):
        opened().write({moves: {b"m": value, b"n": b"x"}})

    history = table.read_history()
    assert [row.value for row in history[b"m"]] == [b"1", b"2"]
    assert [row.value for row in history[b"n"]] == [b"x"] * 4
    assert table.read_stamped()[b"m"] == history[b"m"][-1]
    assert table.read() == {b"m": b"2", b"n": b"x"}


def test_records_are_stamped_in_the_order_of_the_log(site, unique):
    topic = f"{unique}-stamped"
    configs = {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}
    site.cluster.create_topics([TopicSpec(topic, 1, 1, configs)])
    before = time.time_ns() // 1_000_000
    table = site.cluster.compacted_topic(topic)
    table.write({b"a": b"1"})
    first = table.read_stamped()[b"a"].timestamp_ms
    assert before - 60_000 < first < before + 60_000  # the broker's clock

    eventually(lambda: time.time_ns() // 1_000_000 > first + 1, "time has passed")
    table.write({b"a": b"2"})
    assert table.read_stamped()[b"a"].timestamp_ms > first
