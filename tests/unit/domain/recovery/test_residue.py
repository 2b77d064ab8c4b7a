"""The residue is counted as it comes, and a record that is written down can be read back."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from srm.domain.recovery.source_return import Counting, ResidueRecord, json_row

bytes_or_none = st.none() | st.binary(max_size=20) | st.text(max_size=9).map(str.encode)


def bytes_of(row: Mapping[str, Any], name: str) -> bytes | None:
    """Return the bytes that stand in a JSON object under a name."""
    if f"{name}_base64" in row:
        return base64.b64decode(row[f"{name}_base64"])
    text: str | None = row[name]
    return None if text is None else text.encode()


@given(
    bytes_or_none,
    bytes_or_none,
    st.lists(st.tuples(st.text(max_size=5), bytes_or_none), max_size=3),
)
def test_every_key_value_and_header_can_be_read_back_from_its_line(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    record = ResidueRecord("Payments", 1, 7, 1000, key, value, headers)

    row = json.loads(json.dumps(json_row(record), ensure_ascii=False))

    assert bytes_of(row, "key") == key
    assert bytes_of(row, "value") == value
    assert [(h["name"], bytes_of(h, "value")) for h in row["headers"]] == headers
    assert (row["topic"], row["partition"], row["offset"], row["time_ms"]) == (
        "Payments",
        1,
        7,
        1000,
    )


def test_text_stands_as_text_and_only_other_bytes_in_base64() -> None:
    row = json_row(ResidueRecord("T", 0, 0, -1, "Überweisung".encode(), b"\xff"))

    assert row["key"] == "Überweisung"
    assert row["value_base64"] == "/w=="
    assert "value" not in row


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(-1, 99)), max_size=30),
    st.lists(st.integers(0, 130), max_size=5),
    st.integers(1, 7),
)
@example([(1, -1), (1, 5)], [], 1)
def test_records_are_counted_before_each_mark_however_they_arrive(
    steps: list[tuple[int, int]], marks: list[int], size: int
) -> None:
    records, at = [], 0
    for step, time_ms in steps:
        at += step
        records.append((at, time_ms))
    counting = Counting(marks, until_ms=50)

    for first in range(0, len(records), size):
        some = records[first : first + size]
        counting.take([offset for offset, _ in some], [time_ms for _, time_ms in some])

    found = counting
    assert found.records == len(records)
    assert found.below == {m: sum(offset < m for offset, _ in records) for m in marks}
    assert found.late == sum(time_ms > 50 for _, time_ms in records)
    times = [time_ms for _, time_ms in records if time_ms != -1]  # of records without one
    assert (found.first_ms, found.last_ms) == (min(times, default=None), max(times, default=None))
