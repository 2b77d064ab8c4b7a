"""Messages of Kafka's protocol apart from the hot path, and the types of their fields.

Layouts are those of the JSON files in Apache Kafka's ``common/message``. The form of a message says
how its sizes are written. Requests take values by position, answers give them by name.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from io import BytesIO
from typing import Any, Final, Protocol

from confluent_kafka import KafkaError


def error_name(code: int) -> str:
    """Return Kafka's name of an error code."""
    return KafkaError(code).name()


def uvarint(value: int) -> bytes:
    """Write an unsigned number in groups of seven bits."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_uvarint(data: BytesIO) -> int:
    value = shift = 0
    while True:
        byte = _take(data, 1)[0]
        value |= (byte & 0x7F) << shift
        if byte <= 0x7F:
            return value
        shift += 7


def _take(data: BytesIO, size: int) -> bytes:
    taken = data.read(size)
    if len(taken) < size:
        raise ValueError(f"the message ends {size - len(taken)} bytes early")
    return taken


class Fixed:
    """A value of a fixed size; ``layout`` is one of :mod:`struct`."""

    def __init__(self, layout: str) -> None:
        self._struct = struct.Struct(f">{layout}")

    def encode(self, value: object, _form: Form) -> bytes:
        """Write a value."""
        return self._struct.pack(value)

    def decode(self, data: BytesIO, _form: Form) -> Any:
        """Read a value."""
        return self._struct.unpack(_take(data, self._struct.size))[0]


INT8: Final = Fixed("b")
INT16: Final = Fixed("h")
INT32: Final = Fixed("i")
INT64: Final = Fixed("q")
BOOLEAN: Final = Fixed("?")
UUID: Final = Fixed("16s")


class Form(Enum):
    """Form of sizes: fixed if CLASSIC, not if FLEXIBLE (KIP-482), without tagged fields."""

    CLASSIC = "classic"
    FLEXIBLE = "flexible"

    def encode_size(self, size: int, fixed: Fixed) -> bytes:
        """Write a size, -1 for null."""
        return uvarint(size + 1) if self is FLEXIBLE else fixed.encode(size, self)

    def decode_size(self, data: BytesIO, fixed: Fixed) -> int:
        """Read a size, negative for null."""
        size: int = _read_uvarint(data) - 1 if self is FLEXIBLE else fixed.decode(data, self)
        return size

    @property
    def no_tags(self) -> bytes:
        """End of a structure."""
        return b"\x00" if self is FLEXIBLE else b""

    def skip_tags(self, data: BytesIO) -> None:
        """Read the end of a structure."""
        for _ in range(_read_uvarint(data) if self is FLEXIBLE else 0):
            _read_uvarint(data)
            _take(data, _read_uvarint(data))


CLASSIC: Final = Form.CLASSIC
FLEXIBLE: Final = Form.FLEXIBLE


class FieldType(Protocol):
    """The type of a field."""

    def encode(self, value: Any, form: Form, /) -> bytes:
        """Write a value."""

    def decode(self, data: BytesIO, form: Form, /) -> Any:
        """Read a value; ValueError or struct.error where it is incomplete."""


class Blob:
    """Bytes or null, with a size of a given width."""

    def __init__(self, width: Fixed) -> None:
        self._width = width

    def encode(self, value: bytes | None, form: Form) -> bytes:
        """Write a value."""
        size = -1 if value is None else len(value)
        return form.encode_size(size, self._width) + (value or b"")

    def decode(self, data: BytesIO, form: Form) -> Any:
        """Read a value."""
        size = form.decode_size(data, self._width)
        return None if size < 0 else _take(data, size)


class _Text:
    """A string or null."""

    _blob = Blob(INT16)

    def encode(self, value: str | None, form: Form) -> bytes:
        """Write a value."""
        return self._blob.encode(None if value is None else value.encode(), form)

    def decode(self, data: BytesIO, form: Form) -> str | None:
        """Read a value."""
        value = self._blob.decode(data, form)
        return None if value is None else value.decode()


BYTES: Final = Blob(INT32)
TEXT: Final = _Text()


class Array:
    """A list of one kind of values, or null."""

    def __init__(self, item: FieldType) -> None:
        self.item = item

    def encode(self, values: Sequence[Any] | None, form: Form) -> bytes:
        """Write values."""
        if values is None:
            return form.encode_size(-1, INT32)
        items = (self.item.encode(value, form) for value in values)
        return form.encode_size(len(values), INT32) + b"".join(items)

    def decode(self, data: BytesIO, form: Form) -> list[Any] | None:
        """Read values."""
        size = form.decode_size(data, INT32)
        return None if size < 0 else [self.item.decode(data, form) for _ in range(size)]


class Structure:
    """Named fields."""

    def __init__(self, **fields: FieldType) -> None:
        self.fields = fields

    def encode(self, values: Sequence[Any], form: Form) -> bytes:
        """Write the fields."""
        fields = zip(self.fields.values(), values, strict=True)
        return b"".join(kind.encode(value, form) for kind, value in fields) + form.no_tags

    def decode(self, data: BytesIO, form: Form) -> dict[str, Any]:
        """Read the fields."""
        found = {name: kind.decode(data, form) for name, kind in self.fields.items()}
        form.skip_tags(data)
        return found


class Nullable(Structure):
    """A structure that may be null (KIP-893)."""

    def encode(self, values: Sequence[Any] | None, form: Form) -> bytes:
        """Write a mark and, unless that says null, the structure."""
        if values is None:
            return INT8.encode(-1, form)
        return INT8.encode(1, form) + super().encode(values, form)

    def decode(self, data: BytesIO, form: Form) -> Any:
        """Read a mark and, unless that says null, the structure."""
        return None if INT8.decode(data, form) < 0 else super().decode(data, form)


def array(**fields: FieldType) -> Array:
    """Make an array of structures."""
    return Array(Structure(**fields))


NAMES: Final = Array(TEXT)
NUMBERS: Final = Array(INT32)


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """One version of a request with its answer."""

    api_key: int
    version: int
    request: Structure
    response: Structure
    form: Form = FLEXIBLE

    def __call__(self, *values: object) -> Request:
        """Make a request of the values of its fields."""
        return Request(self, values)


@dataclass(frozen=True, slots=True)
class Request:
    """A message with its values."""

    message: Message
    values: tuple[Any, ...]

    def encode(self) -> bytes:
        """Write the request after its header."""
        return self.message.request.encode(self.values, self.message.form)

    def decode(self, data: BytesIO) -> dict[str, Any]:
        """Read the answer after its correlation id."""
        self.message.form.skip_tags(data)  # of the header
        return self.message.response.decode(data, self.message.form)
