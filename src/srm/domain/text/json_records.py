"""Records whose value is a dataclass in JSON; errors show the damaged bytes."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from typing import Any, TypeVar

from srm.errors import IntegrityError

_R = TypeVar("_R")


@contextmanager
def decoding(kind: str, value: bytes) -> Iterator[None]:
    """Turn the errors of damaged bytes into an IntegrityError that shows the bytes."""
    try:
        yield
    except (struct.error, ValueError, TypeError, KeyError, AttributeError) as error:
        raise IntegrityError(f"{kind} {value[:60]!r} is damaged: {error!r}") from error


def encode(record: Any) -> bytes:
    """Encode all fields of a dataclass."""
    return json.dumps(asdict(record), separators=(",", ":")).encode()


def decode(record: type[_R], kind: str, value: bytes) -> _R:
    """Decode a dataclass; ignore fields of newer versions.

    Args:
        record: the dataclass.
        kind: its name in messages.
        value: as :func:`encode` wrote it.

    Raises:
        IntegrityError: the value is not such a record.
    """
    with decoding(kind, value):
        names = {field.name for field in fields(record)}  # type: ignore[arg-type]
        known = {name: found for name, found in json.loads(value).items() if name in names}
        return record(**known)
