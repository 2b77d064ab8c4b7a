"""Messages of Kafka's protocol apart from the hot path, and the types of their fields.

Layouts are those of the JSON files in Apache Kafka's ``common/message``. The form of a message says
how its sizes are written. Requests take values by position, answers give them by name.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class Cursor:
    """A place in a message that is read.

    ValueError, IndexError or struct.error: the message ends too early.
    """

    __slots__ = ("at", "view")

    def __init__(self, view: memoryview | bytes, at: int = 0) -> None:
        self.view = memoryview(view)
        self.at = at

    def take(self, layout: struct.Struct) -> tuple[Any, ...]:
        values = layout.unpack_from(self.view, self.at)
        self.at += layout.size
        return values

    def raw(self, size: int) -> memoryview:
        """Return the next bytes without a copy."""
        part = self.view[self.at : self.at + size]
        if len(part) < size:
            raise ValueError(f"the message ends {size - len(part)} bytes early")
        self.at += size
        return part

    def uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self.view[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte <= 0x7F:
                return value
            shift += 7

    def skip_tags(self) -> list[int]:
        """Return which tagged fields there were."""
        tags = []
        for _ in range(self.uvarint()):
            tags.append(self.uvarint())
            self.raw(self.uvarint())
        return tags


class Fixed:
    """A value of a fixed size; ``layout`` is one of :mod:`struct`."""

    def __init__(self, layout: str) -> None:
        self._struct = struct.Struct(f">{layout}")

    def encode(self, value: object, _form: Form) -> bytes:
        return self._struct.pack(value)

    def decode(self, data: Cursor, _form: Form) -> Any:
        return data.take(self._struct)[0]


INT8: Final = Fixed("b")
INT16: Final = Fixed("h")
INT32: Final = Fixed("i")
INT64: Final = Fixed("q")
FLOAT64: Final = Fixed("d")
BOOLEAN: Final = Fixed("?")
UUID: Final = Fixed("16s")


class Form(Enum):
    """Form of sizes: fixed if CLASSIC, not if FLEXIBLE (KIP-482), without tagged fields."""

    CLASSIC = "classic"
    FLEXIBLE = "flexible"

    def encode_size(self, size: int, fixed: Fixed) -> bytes:
        """Write a size, -1 for null."""
        return uvarint(size + 1) if self is FLEXIBLE else fixed.encode(size, self)

    def decode_size(self, data: Cursor, fixed: Fixed) -> int:
        """Read a size, negative for null."""
        size: int = data.uvarint() - 1 if self is FLEXIBLE else fixed.decode(data, self)
        return size

    def skip_tags(self, data: Cursor) -> None:
        if self is FLEXIBLE:
            data.skip_tags()


CLASSIC: Final = Form.CLASSIC
FLEXIBLE: Final = Form.FLEXIBLE


class Blob:
    """Bytes, or a text in UTF-8, or null, with a size of a given width."""

    def __init__(self, width: Fixed, *, is_text: bool = False) -> None:
        self._width = width
        self._is_text = is_text

    def encode(self, value: Any, form: Form) -> bytes:
        if value is None:
            return form.encode_size(-1, self._width)
        data: bytes = value.encode() if self._is_text else value
        return form.encode_size(len(data), self._width) + data

    def decode(self, data: Cursor, form: Form) -> Any:
        size = form.decode_size(data, self._width)
        if size < 0:
            return None
        raw = data.raw(size)
        return str(raw, "utf-8") if self._is_text else bytes(raw)


BYTES: Final = Blob(INT32)
TEXT: Final = Blob(INT16, is_text=True)


class Array:
    """A list of one kind of values, or null."""

    def __init__(self, item: FieldType) -> None:
        self.item = item

    def encode(self, values: Sequence[Any] | None, form: Form) -> bytes:
        if values is None:
            return form.encode_size(-1, INT32)
        items = (self.item.encode(value, form) for value in values)
        return form.encode_size(len(values), INT32) + b"".join(items)

    def decode(self, data: Cursor, form: Form) -> list[Any] | None:
        size = form.decode_size(data, INT32)
        return None if size < 0 else [self.item.decode(data, form) for _ in range(size)]


class Structure:
    """Named fields."""

    def __init__(self, fields: Mapping[str, FieldType]) -> None:
        self.fields = fields

    def encode(self, values: Sequence[Any], form: Form) -> bytes:
        fields = zip(self.fields.values(), values, strict=True)
        encoded = b"".join(kind.encode(value, form) for kind, value in fields)
        return encoded + b"\x00" if form is FLEXIBLE else encoded  # no tagged fields

    def decode(self, data: Cursor, form: Form) -> dict[str, Any]:
        found = {name: kind.decode(data, form) for name, kind in self.fields.items()}
        form.skip_tags(data)
        return found


class Nullable(Structure):
    """A structure that may be null (KIP-893)."""

    def encode(self, values: Sequence[Any] | None, form: Form) -> bytes:
        if values is None:
            return INT8.encode(-1, form)
        return INT8.encode(1, form) + super().encode(values, form)

    def decode(self, data: Cursor, form: Form) -> Any:
        return None if INT8.decode(data, form) < 0 else super().decode(data, form)


FieldType = Fixed | Blob | Array | Structure
_TYPES: Final[Mapping[str, FieldType]] = {
    "int8": INT8,
    "int16": INT16,
    "int32": INT32,
    "int64": INT64,
    "float64": FLOAT64,
    "bool": BOOLEAN,
    "uuid": UUID,
    "text": TEXT,
    "bytes": BYTES,
}
_TOKEN: Final = re.compile(r"\w+:\w+(?:\[\])?|\w+(?:\[|\(|\?\()|[\])]")


def layout(text: str) -> Structure:
    """Read a notation of fields.

    ``name:type`` is a value, ``name:type[]`` an array of values, ``name[...]`` an array of
    structures, ``name(...)`` a structure, and ``name?(...)`` one that may be null.
    """
    return Structure(_fields(iter(_TOKEN.findall(text))))


def _fields(tokens: Iterator[str]) -> dict[str, FieldType]:
    fields: dict[str, FieldType] = {}
    for token in tokens:
        name, _, kind = token.partition(":")
        if kind:
            one = _TYPES[kind.removesuffix("[]")]
            fields[name] = Array(one) if kind.endswith("[]") else one
        elif token.endswith("["):
            fields[token[:-1]] = Array(Structure(_fields(tokens)))
        elif token.endswith("?("):
            fields[token[:-2]] = Nullable(_fields(tokens))
        elif token.endswith("("):
            fields[token[:-1]] = Structure(_fields(tokens))
        else:
            break
    return fields


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """One version of a request with its answer."""

    api_key: int
    version: int
    request: Structure
    response: Structure
    form: Form

    def __call__(self, *values: object) -> Request:
        return Request(self, values)


def message(text: str) -> Message:
    """Declare a message: its key and version, request, ``->`` and answer, see :func:`layout`.

    Its form is flexible unless ``classic`` follows the version.
    """
    head, _, fields = text.partition(":\n")
    key, version, *form = head.split()
    request, response = map(layout, fields.split("->"))
    is_classic = form == ["classic"]
    return Message(int(key), int(version), request, response, CLASSIC if is_classic else FLEXIBLE)


@dataclass(frozen=True, slots=True)
class Request:
    """A message with its values."""

    message: Message
    values: tuple[Any, ...]

    def encode(self) -> bytes:
        return self.message.request.encode(self.values, self.message.form)

    def decode(self, data: Cursor) -> dict[str, Any]:
        """Read the answer after its correlation id."""
        self.message.form.skip_tags(data)  # of the header
        return self.message.response.decode(data, self.message.form)
