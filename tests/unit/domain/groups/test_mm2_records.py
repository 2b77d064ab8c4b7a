"""MM2's record formats: bytes agreed with the Java classes, and round trips."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.mm2 import decode_heartbeat, decode_sync

from srm.domain.groups.mm2_records import Checkpoint, Heartbeat, OffsetSync, TopicIds
from srm.domain.names.topics import Flow, TopicPartition
from srm.errors import IntegrityError

ORDERS_3 = TopicPartition("orders", 3)
names = st.text(st.characters(exclude_categories=("Cs",)), max_size=60)
partitions = st.integers(0, 2**31 - 1)
offsets = st.integers(-(2**63), 2**63 - 1)
topic_partitions = st.builds(TopicPartition, names, partitions)


def test_offset_sync_has_the_bytes_of_the_java_class() -> None:
    sync = OffsetSync(ORDERS_3, 1000, 998)

    assert sync.key().hex() == "00066f726465727300000003"
    assert sync.value().hex() == "00000000000003e800000000000003e6"


def test_checkpoint_has_the_bytes_of_the_java_class() -> None:
    checkpoint = Checkpoint("grp", TopicPartition("A.orders", 3), 1000, 998)

    assert checkpoint.key().hex() == "00036772700008412e6f726465727300000003"
    assert checkpoint.value().hex() == "000000000000000003e800000000000003e60000"


def test_heartbeat_has_the_bytes_of_the_java_class() -> None:
    heartbeat = Heartbeat(Flow("A", "B"), 1_700_000_000_000)

    assert heartbeat.key().hex() == "000141000142"
    assert heartbeat.value().hex() == "00000000018bcfe56800"


@given(topic_partitions, offsets, offsets)
def test_offset_syncs_survive_a_round_trip(tp: TopicPartition, up: int, down: int) -> None:
    sync = OffsetSync(tp, up, down)

    assert decode_sync(sync.key(), sync.value()) == sync


@given(names, topic_partitions, offsets, offsets, names)
def test_checkpoints_survive_a_round_trip(
    group: str, tp: TopicPartition, up: int, down: int, metadata: str
) -> None:
    checkpoint = Checkpoint(group, tp, up, down, metadata)

    assert Checkpoint.decode(checkpoint.key(), checkpoint.value()) == checkpoint


topic_ids = st.text("abc-_019", min_size=1, max_size=22)


@given(topic_ids, topic_ids)
def test_a_checkpoint_names_the_topics_of_its_offsets(source: str, target: str) -> None:
    ids = TopicIds(source, target)
    written = Checkpoint("grp", ORDERS_3, 1000, 998, ids.metadata())

    read = Checkpoint.decode(written.key(), written.value())

    assert read.topic_ids == ids
    assert read.at_the_start() == Checkpoint("grp", ORDERS_3, 0, 0)


@given(names)
def test_metadata_of_a_commit_that_mm2_copied_names_no_topics(metadata: str) -> None:
    assert (
        metadata.startswith("srm:") or Checkpoint("g", ORDERS_3, 1, 1, metadata).topic_ids is None
    )


@pytest.mark.parametrize("metadata", ["", "srm:", "srm:only", "srm:source:", "AAABjQ=="])
def test_metadata_without_both_ids_names_no_topics(metadata: str) -> None:
    assert Checkpoint("g", ORDERS_3, 1, 1, metadata).topic_ids is None


@given(names, names, offsets)
def test_heartbeats_survive_a_round_trip(source: str, target: str, time_ms: int) -> None:
    heartbeat = Heartbeat(Flow(source, target), time_ms)

    assert decode_heartbeat(heartbeat.key(), heartbeat.value()) == heartbeat


@given(key=st.binary(max_size=40), value=st.binary(max_size=40))
def test_foreign_bytes_raise_nothing_but_an_integrity_error(key: bytes, value: bytes) -> None:
    try:
        decoded = Checkpoint.decode(key, value)
    except IntegrityError:
        return

    assert (decoded.key(), decoded.value()) == (key, value)


@given(st.integers(0, 100), st.booleans())
def test_a_cut_checkpoint_is_refused(cut: int, in_key: bool) -> None:
    checkpoint = Checkpoint("grp", TopicPartition("A.orders", 3), 1000, 998, "note")
    key, value = checkpoint.key(), checkpoint.value()
    part = key if in_key else value
    shortened = part[: cut % len(part)]

    with pytest.raises(IntegrityError, match=r"checkpoint record with key"):
        Checkpoint.decode(shortened if in_key else key, value if in_key else shortened)


def test_a_checkpoint_of_a_later_version_is_refused_by_number() -> None:
    checkpoint = Checkpoint("grp", ORDERS_3, 1, 1)

    with pytest.raises(IntegrityError, match="version 1"):
        Checkpoint.decode(checkpoint.key(), b"\x00\x01" + checkpoint.value()[2:])


def test_a_name_too_long_for_the_format_is_refused() -> None:
    with pytest.raises(IntegrityError, match="40000 bytes"):
        OffsetSync(TopicPartition("t" * 40_000, 0), 1, 1).key()
