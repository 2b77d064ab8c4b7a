"""Files for operators: reports with signature and page, and the residue as JSON lines or Parquet.

Each revision of a report has its own files: no export replaces evidence, and the chain can be
verified. The JSON is written last, so that its presence means a complete export.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Final, Literal, Self
from urllib.parse import quote

from srm.domain.moves.revisions import KeptReport
from srm.domain.names.topics import TopicPartition
from srm.errors import StackError, UsageError
from srm.extras import library
from srm.files import require_writable, user_file, write_atomically
from srm.replication.ports import DecodedRecord


def signature_file(report: Path) -> Path:
    return report.with_name(f"{report.name}.sig")


def export_report(kept: KeptReport, page: str, folder: Path) -> tuple[Path, ...]:
    """Write a report into a folder: JSON, any signature, page; equal files stay unchanged."""
    report = kept.report
    # Ids may contain characters that are invalid in names; distinct ids keep distinct names.
    json = folder / f"{quote(report.move_id, safe='')}.r{report.revision}.json"
    wanted = {json.with_suffix(".html"): page.encode(), json: kept.signed.document}
    if kept.signed.signature is not None:
        wanted = {signature_file(json): kept.signed.signature.value() + b"\n", **wanted}
    return tuple(sorted(file for file, content in wanted.items() if _write_file(file, content)))


def _write_file(file: Path, content: bytes) -> bool:
    """Write a file atomically; return False if it exists with this content."""
    try:
        if file.is_file() and file.read_bytes() == content:
            return False
        write_atomically(file, content)
    except (OSError, StackError) as error:
        raise UsageError(f"report {file}: {error}") from error
    return True


if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
else:
    pa = library("pyarrow")
    pq = library("pyarrow.parquet")

Format = Literal["jsonl", "parquet"]


@cache
def _schema() -> pa.Schema:
    """Return the columns of the Parquet files; bytes stay bytes: any encoding is preserved."""
    header = pa.struct([pa.field("name", pa.string()), pa.field("value", pa.binary())])
    return pa.schema(
        [
            pa.field("topic", pa.string(), nullable=False),
            pa.field("partition", pa.int32(), nullable=False),
            pa.field("offset", pa.int64(), nullable=False),
            pa.field("time", pa.timestamp("ms", "UTC")),
            pa.field("key", pa.binary()),
            pa.field("value", pa.binary()),
            pa.field("headers", pa.list_(header)),
        ]
    )


class ResidueFiles:
    """Writes ``TOPIC-PARTITION.jsonl`` or ``.parquet`` files, ``.part`` until complete."""

    def __init__(self, directory: Path, kind: Format) -> None:
        self._directory = directory
        self._kind = kind
        self._parts: dict[Path, _JsonLines | _Parquet] = {}
        with user_file(directory, "written"):
            directory.mkdir(parents=True, exist_ok=True)
        require_writable(directory)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _e: BaseException | None, _t: TracebackType | None
    ) -> None:
        for path, part in self._parts.items():
            part.close()
            if kind is None:
                os.replace(_part_of(path), path)  # noqa: PTH105 -- atomic, and says so

    def write(self, place: TopicPartition, records: Sequence[DecodedRecord]) -> None:
        path = self._directory / f"{place}.{self._kind}"
        with user_file(path, "written"):
            part = self._parts.get(path)
            if part is None:
                new = _JsonLines if self._kind == "jsonl" else _Parquet
                part = self._parts[path] = new(_part_of(path), place)
            part.write(records)

    @property
    def paths(self) -> tuple[Path, ...]:
        return tuple(self._parts)


def _part_of(path: Path) -> Path:
    return path.with_name(path.name + ".part")


def json_row(place: TopicPartition, record: DecodedRecord) -> dict[str, Any]:
    """Return a record as a JSON object; other bytes than UTF-8 in base64, under ``NAME_base64``."""
    return {
        "topic": place.topic,
        "partition": place.partition,
        "offset": record.offset,
        "time_ms": record.timestamp,
        **_text("key", record.key),
        **_text("value", record.value),
        "headers": [{"name": name, **_text("value", value)} for name, value in record.headers],
    }


def _text(name: str, value: bytes | None) -> dict[str, str | None]:
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}


class _JsonLines:
    def __init__(self, path: Path, place: TopicPartition) -> None:
        self._place = place
        self._file: IO[str] = path.open("w", encoding="utf-8")

    def write(self, records: Sequence[DecodedRecord]) -> None:
        for record in records:
            self._file.write(json.dumps(json_row(self._place, record), ensure_ascii=False) + "\n")

    def close(self) -> None:
        self._file.close()


class _Parquet:
    def __init__(self, path: Path, place: TopicPartition) -> None:
        self._place = place
        self._writer = pq.ParquetWriter(path, _schema(), compression="zstd")
        self._waiting: list[DecodedRecord] = []

    def write(self, records: Sequence[DecodedRecord]) -> None:
        self._waiting += records
        if len(self._waiting) >= _ROW_GROUP:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        rows = [
            {
                "topic": self._place.topic,
                "partition": self._place.partition,
                "offset": record.offset,
                "time": None if record.timestamp < 0 else record.timestamp,
                "key": record.key,
                "value": record.value,
                "headers": [{"name": name, "value": value} for name, value in record.headers],
            }
            for record in self._waiting
        ]
        if rows:
            self._writer.write_table(pa.Table.from_pylist(rows, _schema()))
        self._waiting.clear()


_ROW_GROUP: Final = 10_000
