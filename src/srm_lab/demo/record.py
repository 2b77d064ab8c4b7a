"""Records of producers and applications: one line per payment, as it happens.

The demo trusts only these files. Each line is written with one system call right after the
fact, so it survives the death of the process::

    time_ms  cluster  topic  partition  offset  payment id        (tab-separated)
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from srm.errors import IntegrityError


@dataclass(frozen=True, slots=True)
class PaymentEntry:
    """One payment: acknowledged to a producer, or processed by an application."""

    time_ms: int
    cluster: str
    topic: str
    partition: int
    offset: int
    payment: str

    def line(self) -> bytes:
        """Encode."""
        fields = (self.time_ms, self.cluster, self.topic, self.partition, self.offset, self.payment)
        return ("\t".join(map(str, fields)) + "\n").encode()

    @classmethod
    def parse(cls, line: str) -> PaymentEntry:
        """Decode.

        Raises:
                IntegrityError: it is not a line of a record.
        """
        try:
            time_ms, cluster, topic, partition, offset, payment = line.split("\t")
            return cls(int(time_ms), cluster, topic, int(partition), int(offset), payment)
        except ValueError as error:
            raise IntegrityError(f"{line!r} is not a line of a record of payments") from error


class RecordWriter:
    """Appends entries to a file, each one at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1

    def __enter__(self) -> Self:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._file)

    def write(self, entry: PaymentEntry) -> None:
        """Append one entry; it is with the operating system when this returns."""
        os.write(self._file, entry.line())


class RecordReader:
    """Reads a record that may still grow: each call returns what is new, whole lines only."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0

    def new(self) -> Iterator[PaymentEntry]:
        """Yield the entries written since the last call; none without a file."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._position)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._position += len(line)
                yield PaymentEntry.parse(line.decode().rstrip("\n"))


def read_record(path: Path) -> list[PaymentEntry]:
    """Read a record as a whole."""
    return list(RecordReader(path).new())
