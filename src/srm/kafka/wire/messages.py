"""Messages that aiokafka does not have, out of its parts: flexible ones above all (KIP-482).

Layouts are those of the JSON files in Apache Kafka's ``common/message``.
"""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import Any, Final

from aiokafka.protocol.abstract import AbstractType
from aiokafka.protocol.api import RequestStruct, Response
from aiokafka.protocol.types import (
    CompactArray,
    CompactString,
    Int8,
    Schema,
    TaggedFields,
)

TEXT: Final = CompactString("utf-8")
"""A string of a flexible message, null where the layout allows it."""

_NO_TAGS: Final = TaggedFields.encode({})


class Structure(Schema):
    """A structure of a flexible message, with tagged fields that srm neither sends nor reads."""

    def encode(self, item: Sequence[Any]) -> bytes:
        """Write the fields."""
        return bytes(super().encode(item) + _NO_TAGS)

    def decode(self, data: BytesIO) -> tuple[Any, ...]:
        """Read the fields."""
        values: tuple[Any, ...] = super().decode(data)
        TaggedFields.decode(data)
        return values


class Uuid(AbstractType[bytes]):
    """The 16 bytes of an id."""

    @classmethod
    def encode(cls, value: bytes) -> bytes:
        """Write it as it is."""
        return value

    @classmethod
    def decode(cls, data: BytesIO) -> bytes:
        """Read it as it is."""
        return data.read(16)


class Nullable:
    """A structure that may be null (KIP-893), in answers only."""

    def __init__(self, *fields: tuple[str, Any]) -> None:
        self._schema = Structure(*fields)

    def decode(self, data: BytesIO) -> Any:
        """Read a mark and, unless that says null, the structure."""
        return None if Int8.decode(data) < 0 else self._schema.decode(data)

    def repr(self, value: object) -> str:
        """Print it for a debug log."""
        return repr(value)


def array(*fields: tuple[str, Any]) -> CompactArray:
    """Make an array of structures of a flexible message."""
    return CompactArray(Structure(*fields))


def message(
    api_key: int, version: int, request: Schema, response: Schema, *, flexible: bool = True
) -> type[RequestStruct]:
    """Make the class of a request, of which instances take the fields by name."""
    numbers = {"API_KEY": api_key, "API_VERSION": version}
    answer = type(f"Response{api_key}v{version}", (Response,), {**numbers, "SCHEMA": response})
    made: type[RequestStruct] = type(
        f"Request{api_key}v{version}",
        (RequestStruct,),
        {
            **numbers,
            "FLEXIBLE_VERSION": flexible,
            "RESPONSE_TYPE": answer,
            "SCHEMA": request,
        },
    )
    return made
