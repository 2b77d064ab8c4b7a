"""Records of payments as files that grow while they are read."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from srm.errors import IntegrityError
from srm_lab.demo.record import PaymentEntry, RecordReader, RecordWriter, read_record

ENTRY = PaymentEntry(1_700_000_000_000, "P", "B.Payments", 3, 42, "shop-00000001")


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "below" / "ledger.tsv"
    with RecordWriter(path) as record:
        record.write(ENTRY)
        record.write(ENTRY)

        assert read_record(path) == [ENTRY, ENTRY]  # while the writer still has it open


def test_an_application_that_starts_again_appends(tmp_path: Path) -> None:
    path = tmp_path / "ledger.tsv"
    for _ in range(2):
        with RecordWriter(path) as record:
            record.write(ENTRY)

    assert len(read_record(path)) == 2


def test_a_reader_returns_only_what_is_new_and_only_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "ledger.tsv"
    reader = RecordReader(path)
    assert list(reader.new()) == []  # there is no file yet

    line = ENTRY.line()
    path.write_bytes(line + line[:10])
    assert list(reader.new()) == [ENTRY]
    assert list(reader.new()) == []

    with path.open("ab") as file:
        file.write(line[10:])
    assert list(reader.new()) == [ENTRY]


def test_a_reader_ends_though_the_writer_is_as_fast(tmp_path: Path) -> None:
    """On a busy machine a demo once read the payments of its sale for ever."""
    path = tmp_path / "ledger.tsv"
    with RecordWriter(path) as record:
        for _ in range(500):
            record.write(ENTRY)
        read = 0
        for _ in islice(RecordReader(path).new(), 1000):
            record.write(ENTRY)
            read += 1

    assert read == 500


def test_a_damaged_line_is_an_error_that_shows_it() -> None:
    with pytest.raises(IntegrityError, match="nonsense"):
        PaymentEntry.parse("nonsense\tP")
