"""Commits in ``__consumer_offsets``: bytes of the Java classes, and what is left out."""

from __future__ import annotations

import struct
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srm.domain.groups.mm2_records import (
    NewCommits,
    OffsetCommit,
    commits_after_deletion,
    decode_commit,
)
from srm.domain.names.topics import TopicPartition, topic_id_text

PLACE = TopicPartition("orders", 3)


def text(value: str) -> bytes:
    return struct.pack(">h", len(value.encode())) + value.encode()


def key(group: str = "billing", place: TopicPartition = PLACE, version: int = 1) -> bytes:
    head = struct.pack(">h", version) + text(group)
    return head + text(place.topic) + struct.pack(">i", place.partition)


def value(offset: int = 7, version: int = 3, tagged: bytes = b"\0", metadata: str = "") -> bytes:
    epoch = struct.pack(">i", 5) if version >= 3 else b""
    note = bytes([len(metadata) + 1]) + metadata.encode() if version >= 4 else text(metadata)
    expires = struct.pack(">q", -1) if version == 1 else b""
    end = tagged if version >= 4 else b""
    return struct.pack(">hq", version, offset) + epoch + note + struct.pack(">q", 1) + expires + end


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_each_version_of_a_commit_is_read(version: int) -> None:
    commit = decode_commit(key(version=min(version, 1)), value(version=version, metadata="x"))

    assert commit == OffsetCommit("billing", PLACE)


def test_the_id_of_the_topic_is_read_where_the_record_has_it() -> None:
    topic_id = uuid.uuid4().bytes

    tagged = b"\2" + b"\0\x10" + topic_id + b"\5\1x"
    commit = decode_commit(key(), value(version=4, tagged=tagged, metadata="note"))

    assert commit == OffsetCommit("billing", PLACE, topic_id_text(topic_id))


@pytest.mark.parametrize("other", [struct.pack(">h", 2) + text("billing"), b"", b"\0", b"\0\1\0"])
def test_records_of_members_and_damaged_ones_are_no_commits(other: bytes) -> None:
    assert decode_commit(other, value()) is None


@given(st.binary(), st.binary())
def test_no_bytes_raise_anything(some: bytes, others: bytes) -> None:
    decode_commit(b"\0\1" + some, others)
    decode_commit(key(), b"\0\4" + others)


def test_a_commit_that_repeats_its_offset_is_not_new() -> None:
    commits = NewCommits()

    assert commits.take(key(), value(7)) is not None
    assert commits.take(key(), value(7, metadata="again")) is None
    assert commits.take(key("audit"), value(7)) is not None, "of another group"
    assert commits.take(key(), value(8)) is not None
    assert commits.take(key(), value(7)) is not None, "a rewind"
    assert commits.take(key(), None) is None
    assert commits.take(key(), value(7)) is not None, "after a deletion"


def test_only_the_first_commit_after_a_tombstone_of_its_key_follows_a_deletion() -> None:
    other = TopicPartition("orders", 4)
    rows = [
        (key("kept"), value(1)),
        (key(), None),
        (key(place=other), value(2)),
        (struct.pack(">h", 2) + text("billing"), None),
        (key(), value(7)),
        (key(), value(8)),
        (key("kept"), value(9)),
        (key("kept"), None),
    ]

    assert commits_after_deletion(rows) == {("billing", PLACE, 7)}


@given(st.lists(st.tuples(st.binary(), st.none() | st.binary())))
def test_no_log_raises_anything(rows: list[tuple[bytes, bytes | None]]) -> None:
    commits_after_deletion(rows)
    commits_after_deletion([(b"\0\1" + one, some) for one, some in rows])
