"""Exported residue: whole files, from which every byte can be read back."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.unit.domain.recovery.test_residue import bytes_of

from srm.domain.recovery.source_return import ResidueRecord
from srm.errors import UsageError
from srm.pages.files import ResidueFiles

RECORDS = [
    ResidueRecord(
        "Payments", 0, 7, 1_700_000_000_123, b"k", b"\xff\x00", [("h", None), ("h", b"1")]
    ),
    ResidueRecord("Payments", 0, 9, -1, None, None),
]
OTHERS = [ResidueRecord("Payments", 1, 3, 5, b"k", b"v")]


def test_json_lines_hold_what_the_records_held(tmp_path: Path) -> None:
    with ResidueFiles(tmp_path / "out", "jsonl") as files:
        files.write(RECORDS[:1])
        files.write(OTHERS)
        files.write(RECORDS[1:])

    first, second = (tmp_path / "out" / f"Payments-{n}.jsonl" for n in (0, 1))
    assert files.paths == (first, second)
    rows = [json.loads(line) for line in first.read_text("utf-8").splitlines()]
    assert [row["offset"] for row in rows] == [7, 9]
    assert [bytes_of(row, "value") for row in rows] == [b"\xff\x00", None]
    assert sorted(path.name for path in first.parent.iterdir()) == [first.name, second.name]


def test_parquet_holds_bytes_as_bytes_and_times_as_times(tmp_path: Path) -> None:
    with ResidueFiles(tmp_path, "parquet") as files:
        files.write(RECORDS)

    rows = pq.read_table(tmp_path / "Payments-0.parquet").to_pylist()
    assert rows[0]["value"] == b"\xff\x00"
    assert rows[0]["headers"] == [{"name": "h", "value": None}, {"name": "h", "value": b"1"}]
    assert rows[0]["time"] == datetime.fromtimestamp(1_700_000_000.123, UTC)
    assert (rows[1]["key"], rows[1]["time"]) == (None, None)


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_file_of_an_export_that_broke_off_does_not_look_whole(tmp_path: Path, kind: str) -> None:
    files = ResidueFiles(tmp_path, kind)  # type: ignore[arg-type]
    files.write(RECORDS)
    files.__exit__(KeyboardInterrupt, None, None)

    assert [path.name for path in tmp_path.iterdir()] == [f"Payments-0.{kind}.part"]


def test_a_directory_that_cannot_be_written_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(UsageError, match="cannot be written"):
        ResidueFiles(tmp_path / "file" / "out", "jsonl")
