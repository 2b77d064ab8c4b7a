"""What anybody may have written is read as far as everybody can count with it."""

from __future__ import annotations

import pytest

from srm.domain.text.documents import MOST, read_json
from srm.errors import IntegrityError


def test_numbers_are_as_large_as_those_of_kafka() -> None:
    assert read_json("it", b'{"a": [9223372036854775807, -1.5, 1e3]}') == {
        "a": [MOST, -1.5, 1000.0]
    }


@pytest.mark.parametrize(
    "text",
    [
        b"NaN",
        b'{"a": [-Infinity]}',
        b"1e999",
        b"1e308",
        b"9223372036854775808",
        b"-" + b"9" * 400,
        b"9" * 5000,
        b"[" * 200_000,
        b"\xff",
        b"",
    ],
)
def test_what_nobody_can_count_with_is_refused(text: bytes) -> None:
    with pytest.raises(IntegrityError, match="it is damaged"):
        read_json("it", text)
