"""Records of the replication state topic survive their encoding."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srm.domain.flow_state.replication_records import (
    AssignedPartition,
    Assignment,
    DriverHeartbeat,
    DriverRequest,
    Incarnation,
    PartitionNotes,
    PartitionStatus,
)
from srm.domain.flow_state.replication_state import CopiedTopic
from srm.domain.names.topics import topic_id_text
from srm.errors import IntegrityError

names = st.text(max_size=40)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
topic_ids = st.binary(min_size=16, max_size=16).map(topic_id_text)
incarnations = st.none() | st.builds(
    Incarnation, int64.map(abs), st.text("0123456789abcdef", max_size=8)
)

assigned = st.builds(AssignedPartition, names, int32, topic_ids, names, topic_ids)


@given(names, int64, st.lists(assigned, max_size=5).map(tuple), incarnations)
def test_assignments_survive_a_round_trip(
    slot: str,
    generation: int,
    partitions: tuple[AssignedPartition, ...],
    incarnation: Incarnation | None,
) -> None:
    assignment = Assignment(slot, generation, partitions, incarnation)

    assert Assignment.decode(assignment.value()) == assignment


def test_an_assignment_says_the_name_and_ids_of_a_topic_once() -> None:
    topic_id = "A" * 22
    partitions = [AssignedPartition("t", n, topic_id, "P.t", topic_id) for n in range(10_000)]

    assert len(Assignment("0", 1, tuple(partitions)).value()) < 60_000


@given(names, names, names, int32, int64)
def test_driver_heartbeats_survive_a_round_trip(
    driver: str, application: str, host: str, pid: int, time_ms: int
) -> None:
    heartbeat = DriverHeartbeat(driver, application, host, pid, time_ms)

    assert DriverHeartbeat.decode(heartbeat.value()) == heartbeat


statuses = st.builds(
    PartitionStatus,
    names,
    int32,
    st.sampled_from(["claiming", "copying", "waiting", "stopped"]),
    names,
    st.none() | int64,
    st.none() | int64,
    int64,
)


@given(statuses)
def test_statuses_survive_a_round_trip(status: PartitionStatus) -> None:
    assert PartitionStatus.decode(status.value()) == status


@pytest.mark.parametrize(
    "decode", [Assignment.decode, DriverHeartbeat.decode, PartitionStatus.decode]
)
@pytest.mark.parametrize("value", [b"", b"{}", b"[]", b"7", b"\xff", b'{"slot":1}'])
def test_a_damaged_json_record_is_an_integrity_error(
    decode: Callable[[bytes], object], value: bytes
) -> None:
    with pytest.raises(IntegrityError, match="damaged"):
        decode(value)


def test_a_status_from_before_there_were_actions_has_none() -> None:
    status = PartitionStatus("orders", 1, "stopped", "no right; grant Read", action="grant Read")
    old = json.loads(status.value())
    del old["action"]

    assert PartitionStatus.decode(status.value()) == status
    assert PartitionStatus.decode(json.dumps(old).encode()) == replace(status, action="")


@pytest.mark.parametrize(
    "record",
    [
        DriverHeartbeat("d", "a", "h", 1, 2),
        DriverRequest("r", "stop", "somebody", 2),
        PartitionStatus("orders", 1, "stopped", "why", 3, 4, 5),
        PartitionNotes("0", "orders", 1, "A" * 22, lost=2),
        CopiedTopic("orders", "A" * 22, "P.orders", "B" * 22, "P", "B"),
    ],
    ids=lambda record: type(record).__name__,
)
def test_what_a_newer_version_has_added_to_a_json_record_is_skipped(record: Any) -> None:
    more = json.dumps({**json.loads(record.value()), "of_a_newer_version": 1}).encode()

    assert type(record).decode(more) == record
