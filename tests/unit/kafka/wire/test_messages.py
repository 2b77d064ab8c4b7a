"""Every declared message has the bytes that aiokafka's protocol gives it, and is read back."""

from __future__ import annotations

import struct
from functools import partial
from io import BytesIO
from typing import Any

import pytest
from aiokafka.protocol import admin, fetch, offset, transaction, types
from aiokafka.protocol.api import RequestStruct
from hypothesis import given, settings
from hypothesis import strategies as st

from srm.kafka.wire import messages, requests
from srm.kafka.wire.messages import (
    CLASSIC,
    FLEXIBLE,
    UUID,
    Array,
    Cursor,
    FieldType,
    Form,
    Message,
    Nullable,
    Structure,
    layout,
)

MESSAGES = {
    f"{message.api_key} v{message.version}": message
    for message in vars(requests).values()
    if isinstance(message, Message)
}
LIBRARY = {
    f"{found.API_KEY} v{found.API_VERSION}": found
    for module in (admin, fetch, offset, transaction)
    for found in vars(module).values()
    if isinstance(found, type)
    and issubclass(found, RequestStruct)
    and hasattr(found, "API_KEY")
    and not found.FLEXIBLE_VERSION
}
TEXT, SHORT_TEXT = types.CompactString("utf-8"), types.String("utf-8")
FIXED = {
    messages.INT8: types.Int8,
    messages.INT16: types.Int16,
    messages.INT32: types.Int32,
    messages.INT64: types.Int64,
    messages.FLOAT64: types.Float64,
    messages.BOOLEAN: types.Boolean,
}


class Raw(types.AbstractType[bytes]):
    """Bytes without a size."""

    @classmethod
    def encode(cls, value: bytes) -> bytes:
        return value

    @classmethod
    def decode(cls, data: BytesIO) -> bytes:
        return data.read(16)


class Tagged(types.Schema):
    """A structure with no tagged field."""

    def encode(self, item: Any) -> bytes:
        return bytes(super().encode(item) + types.TaggedFields.encode({}))


class Marked(Tagged):
    """A structure that may be null."""

    def encode(self, item: Any) -> bytes:
        return b"\xff" if item is None else b"\x01" + super().encode(item)


def in_library(kind: FieldType, form: Form) -> Any:
    """Build the same layout of aiokafka's types."""
    flexible = form is FLEXIBLE
    if isinstance(kind, Structure):
        made = (Marked if isinstance(kind, Nullable) else Tagged) if flexible else types.Schema
        return made(*((name, in_library(field, form)) for name, field in kind.fields.items()))
    if isinstance(kind, Array):
        made = types.CompactArray if flexible else types.Array
        return made(in_library(kind.item, form))
    if kind is messages.TEXT:
        return TEXT if flexible else SHORT_TEXT
    if kind is messages.BYTES:
        return types.CompactBytes if flexible else types.Bytes
    return Raw if kind is UUID else FIXED[kind]  # type: ignore[index]


def number(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


VALUES: dict[object, st.SearchStrategy[Any]] = {
    messages.INT8: number(8),
    messages.INT16: number(16),
    messages.INT32: number(32),
    messages.INT64: number(64),
    messages.FLOAT64: st.floats(allow_nan=False),
    messages.BOOLEAN: st.booleans(),
    messages.TEXT: st.none() | st.text(max_size=200),
    messages.BYTES: st.none() | st.binary(max_size=200),
    UUID: st.binary(min_size=16, max_size=16),
}


def values(kind: FieldType) -> st.SearchStrategy[Any]:
    """Draw values of a layout."""
    if isinstance(kind, Structure):
        fields = st.tuples(*(values(field) for field in kind.fields.values()))
        return st.none() | fields if isinstance(kind, Nullable) else fields
    if isinstance(kind, Array):
        return st.none() | st.lists(values(kind.item), max_size=2)
    return VALUES[kind]


def named(kind: FieldType, value: Any) -> Any:
    """Give values the names that an answer gives them."""
    if value is None:
        return None
    if isinstance(kind, Structure):
        pairs = zip(kind.fields.items(), value, strict=True)
        return {name: named(field, each) for (name, field), each in pairs}
    return [named(kind.item, each) for each in value] if isinstance(kind, Array) else value


@pytest.mark.parametrize("name", MESSAGES)
@settings(max_examples=20)
@given(data=st.data())
def test_a_message_is_encoded_as_in_aiokafka_and_read_back(name: str, data: st.DataObject) -> None:
    message = MESSAGES[name]
    for fields in (message.request, message.response):
        drawn = data.draw(values(fields))
        encoded = fields.encode(drawn, message.form)
        assert encoded == in_library(fields, message.form).encode(drawn)
        read = Cursor(encoded)
        assert fields.decode(read, message.form) == named(fields, drawn)
        assert read.at == len(encoded)


@pytest.mark.parametrize("name", sorted(MESSAGES.keys() & LIBRARY.keys()))
@settings(max_examples=20)
@given(data=st.data())
def test_the_layout_of_a_message_is_that_of_aiokafka(name: str, data: st.DataObject) -> None:
    ours, theirs = MESSAGES[name], LIBRARY[name]
    for fields, schema in (
        (ours.request, theirs.SCHEMA),
        (ours.response, theirs.RESPONSE_TYPE.SCHEMA),
    ):
        drawn = data.draw(values(fields))
        assert fields.encode(drawn, ours.form) == schema.encode(drawn)


def test_messages_that_aiokafka_has_are_compared_with_it() -> None:
    assert MESSAGES.keys() & LIBRARY.keys() == {
        *("18 v0", "22 v0", "24 v0", "26 v0", "29 v1", "17 v1", "36 v1", "48 v0"),
    }


def test_tagged_fields_of_newer_brokers_are_skipped() -> None:
    found = layout("error_code:int16 name:text")
    tags = b"\x02" + b"\x00\x03abc" + b"\x81\x01\x00"  # tag 0 with 3 bytes, tag 129 with none

    assert found.decode(Cursor(b"\x00\x07\x03xy" + tags), FLEXIBLE) == {
        "error_code": 7,
        "name": "xy",
    }


@pytest.mark.parametrize("form", [CLASSIC, FLEXIBLE])
@settings(max_examples=20)
@given(data=st.data())
def test_a_message_that_ends_early_is_an_error(form: Form, data: st.DataObject) -> None:
    items = layout("items[id:uuid name:text ids:int32[]]").fields["items"]
    assert isinstance(items, Array)
    encoded = items.encode(data.draw(st.lists(values(items.item), min_size=1)), form)
    cut = data.draw(st.integers(0, len(encoded) - 1))

    read = partial(items.decode, Cursor(encoded[:cut]), form)

    with pytest.raises((ValueError, IndexError, struct.error)):
        read()
