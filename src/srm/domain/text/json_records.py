"""Records whose value is a dataclass in JSON; whatever is damaged shows in the error."""

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
    """Turn whatever damaged bytes lead to into an IntegrityError that shows them."""
    try:
        yield
    except (struct.error, ValueError, TypeError, KeyError, AttributeError) as error:
        raise IntegrityError(f"{kind} {value[:60]!r} is damaged: {error!r}") from error


def encode(record: Any) -> bytes:
    """Write all fields of a dataclass."""
    return json.dumps(asdict(record), separators=(",", ":")).encode()


def decode(record: type[_R], kind: str, value: bytes) -> _R:
    """Read a dataclass; a newer version may have written more fields than it has here.

    Args:
        record: the dataclass.
        kind: what it is called in messages.
        value: as :func:`encode` wrote it.

    Raises:
        IntegrityError: the value is something else.
    """
    with decoding(kind, value):
        names = {field.name for field in fields(record)}  # type: ignore[arg-type]
        known = {name: found for name, found in json.loads(value).items() if name in names}
        return record(**known)
