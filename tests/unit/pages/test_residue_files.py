"""Exported residue: whole files, from which every byte can be read back."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from srm.domain.names.topics import TopicPartition
from srm.errors import UsageError
from srm.pages.files import ResidueFiles, json_row
from srm.replication.ports import DecodedRecord

RECORDS = [
    DecodedRecord(7, 1_700_000_000_123, b"k", b"\xff\x00", [("h", None), ("h", b"1")]),
    DecodedRecord(9, -1, None, None, []),
]
OTHERS = [DecodedRecord(3, 5, b"k", b"v", [])]
PAYMENTS = TopicPartition("Payments", 0)


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
    record = DecodedRecord(7, 1000, key, value, headers)

    row = json.loads(
        json.dumps(json_row(TopicPartition("Payments", 1), record), ensure_ascii=False)
    )

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
    row = json_row(PAYMENTS, DecodedRecord(0, -1, "Überweisung".encode(), b"\xff", []))

    assert row["key"] == "Überweisung"
    assert row["value_base64"] == "/w=="
    assert "value" not in row


def test_json_lines_hold_what_the_records_held(tmp_path: Path) -> None:
    with ResidueFiles(tmp_path / "out", "jsonl") as files:
        files.write(PAYMENTS, RECORDS[:1])
        files.write(TopicPartition("Payments", 1), OTHERS)
        files.write(PAYMENTS, RECORDS[1:])

    first, second = (tmp_path / "out" / f"Payments-{n}.jsonl" for n in (0, 1))
    assert files.paths == (first, second)
    rows = [json.loads(line) for line in first.read_text("utf-8").splitlines()]
    assert [row["offset"] for row in rows] == [7, 9]
    assert [bytes_of(row, "value") for row in rows] == [b"\xff\x00", None]
    assert sorted(path.name for path in first.parent.iterdir()) == [first.name, second.name]


def test_parquet_holds_bytes_as_bytes_and_times_as_times(tmp_path: Path) -> None:
    with ResidueFiles(tmp_path, "parquet") as files:
        files.write(PAYMENTS, RECORDS)

    rows = pq.read_table(tmp_path / "Payments-0.parquet").to_pylist()
    assert rows[0]["value"] == b"\xff\x00"
    assert rows[0]["headers"] == [{"name": "h", "value": None}, {"name": "h", "value": b"1"}]
    assert rows[0]["time"] == datetime.fromtimestamp(1_700_000_000.123, UTC)
    assert (rows[1]["key"], rows[1]["time"]) == (None, None)


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_file_of_an_export_that_broke_off_does_not_look_whole(tmp_path: Path, kind: str) -> None:
    files = ResidueFiles(tmp_path, kind)  # type: ignore[arg-type]
    files.write(PAYMENTS, RECORDS)
    files.__exit__(KeyboardInterrupt, None, None)

    assert [path.name for path in tmp_path.iterdir()] == [f"Payments-0.{kind}.part"]


def test_a_directory_that_cannot_be_written_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(UsageError, match="cannot be written"):
        ResidueFiles(tmp_path / "file" / "out", "jsonl")
