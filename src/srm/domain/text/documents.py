"""Dataclasses stored as JSON and checked when read, and other JSON from outside."""

from __future__ import annotations

import json
import logging
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from typing import Any, ClassVar, Final, Self, TypeVar

from pydantic import TypeAdapter, ValidationError

from srm.errors import IntegrityError

_log = logging.getLogger(__name__)


@contextmanager
def decoding(kind: str, value: bytes) -> Iterator[None]:
    """Turn the errors of damaged bytes into an IntegrityError that shows the bytes."""
    try:
        yield
    except (struct.error, ValueError, TypeError, KeyError, AttributeError) as error:
        raise IntegrityError(f"{kind} {value[:60]!r} is damaged: {error!r}") from error


MOST: Final = 2**63 - 1
"""Largest number; no offset, time or size in Kafka is larger."""
_D = TypeVar("_D")


# A type is hashable, which mypy does not accept of type[_D].
_adapter: Final[Callable[[Any], TypeAdapter[Any]]] = cache(TypeAdapter)


def adapter(of: type[_D]) -> TypeAdapter[_D]:
    """Return the encoder and checker for documents of a type."""
    return _adapter(of)


def encode(document: Any, *, indent: int | None = None) -> bytes:
    """Encode a dataclass, or a collection of them, as JSON."""
    return _adapter(type(document)).dump_json(document, indent=indent)


def decode(of: type[_D], kind: str, value: bytes) -> _D:
    """Decode a document as :func:`encode` wrote it; ``kind`` is its name in messages."""
    try:
        return adapter(of).validate_json(value)
    except ValidationError as error:
        raise IntegrityError(f"{kind} is damaged: {cause(error.errors()[0]['msg'])}") from error


def decode_or_none(
    value: bytes | None, decode: Callable[[bytes], _D], where: str = ""
) -> _D | None:
    """Decode a document; None if it is missing or damaged, the latter is logged."""
    try:
        return None if value is None else decode(value)
    except IntegrityError as error:
        _log.error("%s%s; the record is skipped", where, error)
        return None


def cause(message: str) -> str:
    """Return the message of a check, as its own code raised it, without the prefix of pydantic."""
    return message.removeprefix("Value error, ")


def values_of(of: object, *names: str) -> dict[str, Any]:
    """Return the fields of a document that another has under the same names."""
    return {name: getattr(of, name) for name in names}


class Document:
    """A dataclass stored as JSON, checked when read; ``KIND`` is its name in messages.

    Fields of newer versions are ignored.
    """

    __slots__ = ()
    KIND: ClassVar[str]

    def value(self) -> bytes:
        return encode(self)

    @classmethod
    def decode(cls, value: bytes) -> Self:
        return decode(cls, cls.KIND, value)


def read_json(kind: str, text: bytes) -> Any:
    """Read untrusted JSON, with finite numbers up to ``MOST`` only."""
    try:
        return json.loads(text, parse_int=_integer, parse_float=_fraction, parse_constant=_fraction)
    except (ValueError, RecursionError) as error:
        raise IntegrityError(f"{kind} is damaged: {error}") from error


def _integer(digits: str) -> int:
    return _check_bounds(int(digits))


def _fraction(digits: str) -> float:
    return _check_bounds(float(digits))


_N = TypeVar("_N", int, float)


def _check_bounds(number: _N) -> _N:
    if -MOST <= number <= MOST:  # NaN is neither
        return number
    raise ValueError("a number is not finite, or too large")


_LARGEST: Final = 500_000
_PART: Final = b"part:"
_INDEX: Final = b'{"parts":'


@dataclass(frozen=True, slots=True)
class Index(Document):
    """Value of a document's record, if its text is in ``parts`` others, from number ``first``."""

    KIND = "index of a document's parts"
    parts: int
    sha256: str
    first: int = 0

    def keys(self, key: bytes, most: int) -> list[bytes]:
        numbers = range(self.first, self.first + min(self.parts, most))
        return [b"%s%d:%s" % (_PART, number, key) for number in numbers]


def split(
    key: bytes, text: bytes, read: Callable[[], Mapping[bytes, bytes]] = dict
) -> dict[bytes, bytes | None]:
    """Return a document as records that any broker takes, to be written in this order.

    With ``read``, of the records that are replaced, a write that is cut leaves the former document:
    its parts stay until the new index is there.
    """
    if len(text) <= _LARGEST:
        return {key: text}
    cuts = [text[start : start + _LARGEST] for start in range(0, len(text), _LARGEST)]
    count, stored = len(cuts), read()
    old = _index_of(key, stored.get(key, b"")) or Index(0, "")
    first = 0 if count <= old.first else old.first + old.parts
    index = Index(count, sha256(text).hexdigest(), first)
    new = {**dict(zip(index.keys(key, count), cuts, strict=True)), key: index.value()}
    return {**new, **{one: None for one in stored if document_of(one) == key and one not in new}}


def join(records: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Return the documents of :func:`split` by key, without those that lack some of their parts."""
    found = ((key, join_one(records, key)) for key in records if not key.startswith(_PART))
    return {key: text for key, text in found if text is not None}


def join_one(records: Mapping[bytes, bytes], key: bytes) -> bytes | None:
    """Return one document; None if it is missing or lacks some of its parts."""
    text = records.get(key)
    if text is None or not text.startswith(_INDEX):
        return text
    if (index := _index_of(key, text)) is None:
        return None
    text = b"".join(records.get(part, b"") for part in index.keys(key, len(records)))
    return text if sha256(text).hexdigest() == index.sha256 else None


def document_of(key: bytes) -> bytes:
    """Return the key of the document that a record belongs to."""
    return key.split(b":", 2)[2] if key.startswith(_PART) else key


def _index_of(key: bytes, value: bytes) -> Index | None:
    is_index = value.startswith(_INDEX)
    return decode_or_none(value, Index.decode, f"{key!r}: ") if is_index else None
