"""A document of any size survives being stored in records that any broker takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srm.domain.text import documents
from srm.domain.text.documents import document_of, join, split

BROKERS_DEFAULT = 1_000_000

keys = st.sampled_from([b"plan:m", b"plan:m:0", b"plan:m:1:0", b"part", b"drill:7"])
texts = st.binary(max_size=60).map(lambda text: b"{" + text)


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "_LARGEST", 8)


@pytest.mark.usefixtures("_small")
@given(st.lists(st.tuples(keys, texts), max_size=6))
def test_the_last_text_of_each_key_is_read_back(written: list[tuple[bytes, bytes]]) -> None:
    """Also one that follows a longer one, whose last parts remain."""
    stored = dict[bytes, bytes]()
    for key, text in written:
        records = split(key, text)
        assert {document_of(one) for one in records} == {key}
        assert [*records][-1] == key
        stored |= records

    assert join(stored) == dict(written)


@pytest.mark.usefixtures("_small")
@given(texts, texts, st.integers(0, 9))
def test_a_text_that_is_written_in_part_is_the_former_one_or_none(
    before: bytes, after: bytes, count: int
) -> None:
    stored = split(b"k", before) | dict([*split(b"k", after).items()][:count])

    assert join(stored) in ({b"k": before}, {b"k": after}, {})


def test_a_text_of_megabytes_fits_a_broker_with_default_settings() -> None:
    text = b"x" * 5_000_000

    assert max(map(len, split(b"k", text).values())) < BROKERS_DEFAULT
    assert split(b"k", b"{}") == {b"k": b"{}"}


@pytest.mark.parametrize("damage", [b'{"parts":"x"}', b'{"parts":3,"sha256":"00"}', b'{"parts":-1'])
def test_a_damaged_index_hides_no_other_document(damage: bytes) -> None:
    assert join({b"k": damage, b"other": b"{}"}) == {b"other": b"{}"}


def test_an_index_of_too_many_parts_ends_at_once() -> None:
    assert join({b"k": b'{"parts":9000000000000,"sha256":"00"}'}) == {}
