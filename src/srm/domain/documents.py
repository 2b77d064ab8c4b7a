"""Documents: dataclasses that are kept as JSON, and checked field by field when they are read.

The checks of a dataclass are built when it is first needed: that takes milliseconds for each, and
most processes of srm read a few of them or none.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter, ValidationError

from srm.errors import IntegrityError

_D = TypeVar("_D")


# A type is hashable, which mypy does not believe of type[_D].
_adapter: Final[Callable[[Any], TypeAdapter[Any]]] = cache(TypeAdapter)


def adapter(of: type[_D]) -> TypeAdapter[_D]:
    """Return what encodes and checks documents of a type."""
    return _adapter(of)


def encode(document: Any, *, indent: int | None = None) -> bytes:
    """Encode a dataclass, or a collection of them, as JSON."""
    return _adapter(type(document)).dump_json(document, indent=indent)


def decode(of: type[_D], kind: str, value: bytes) -> _D:
    """Read a document.

    Args:
        of: its type.
        kind: what it is called in messages, as in "stored drill".
        value: as :func:`encode` wrote it.

    Raises:
        IntegrityError: the value is something else.
    """
    try:
        return adapter(of).validate_json(value)
    except ValidationError as error:
        raise IntegrityError(f"{kind} is damaged: {error.errors()[0]['msg']}") from error
