"""Records whose value is a dataclass in JSON; errors show the damaged bytes."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from typing import ClassVar, Self

from srm.errors import IntegrityError


@contextmanager
def decoding(kind: str, value: bytes) -> Iterator[None]:
    """Turn the errors of damaged bytes into an IntegrityError that shows the bytes."""
    try:
        yield
    except (struct.error, ValueError, TypeError, KeyError, AttributeError) as error:
        raise IntegrityError(f"{kind} {value[:60]!r} is damaged: {error!r}") from error


class JsonRecord:
    """A dataclass stored as a JSON object; ``KIND`` is its name in messages."""

    __slots__ = ()
    KIND: ClassVar[str]

    def value(self) -> bytes:
        """Encode all fields as the value of a record."""
        fields_of_self = asdict(self)  # type: ignore[call-overload]
        return json.dumps(fields_of_self, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, value: bytes) -> Self:
        """Decode the output of :meth:`value`; ignore fields of newer versions."""
        with decoding(cls.KIND, value):
            names = {field.name for field in fields(cls)}  # type: ignore[arg-type]
            known = {name: found for name, found in json.loads(value).items() if name in names}
            lists = {name: tuple(some) for name, some in known.items() if isinstance(some, list)}
            return cls(**known | lists)
