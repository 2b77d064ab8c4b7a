"""A document of any size survives being stored in records that any broker takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srm.domain.text import documents
from srm.domain.text.documents import document_of, join, split
from srm.engine.moves.tables import Records

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
        records = split(key, text, stored.copy)
        assert {document_of(one) for one in records} == {key}
        stored = replaced(stored, records)

    assert join(stored) == dict(written)


def replaced(stored: dict[bytes, bytes], records: Records) -> dict[bytes, bytes]:
    """Return what is left of records after others were written, as compaction leaves it."""
    return {key: value for key, value in (stored | records).items() if value is not None}


@pytest.mark.usefixtures("_small")
@given(st.lists(st.tuples(texts, st.integers(0, 20)), min_size=1, max_size=5))
def test_a_write_that_is_cut_after_any_record_leaves_the_former_text_or_the_new_one(
    writes: list[tuple[bytes, int]],
) -> None:
    """A kill between two parts hid the former document until somebody wrote it again."""
    stored: dict[bytes, bytes] = {b"k": b"{}"}
    for text, count in writes:
        before, records = join(stored), split(b"k", text, stored.copy)
        for cut in range(len(records) + 1):
            assert join(replaced(stored, dict([*records.items()][:cut]))) in (before, {b"k": text})
        stored = replaced(stored, dict([*records.items()][:count]))

    whole = replaced(stored, split(b"k", long := b"{" * 90, stored.copy))
    assert join(whole) == {b"k": long}
    assert len(whole) == len(split(b"k", long)), "no part is left that the index does not name"


def test_a_text_of_megabytes_fits_a_broker_with_default_settings() -> None:
    text = b"x" * 5_000_000

    assert max(len(part or b"") for part in split(b"k", text).values()) < BROKERS_DEFAULT
    assert split(b"k", b"{}") == {b"k": b"{}"}


@pytest.mark.parametrize("damage", [b'{"parts":"x"}', b'{"parts":3,"sha256":"00"}', b'{"parts":-1'])
def test_a_damaged_index_hides_no_other_document(damage: bytes) -> None:
    assert join({b"k": damage, b"other": b"{}"}) == {b"other": b"{}"}


def test_an_index_of_too_many_parts_ends_at_once() -> None:
    assert join({b"k": b'{"parts":9000000000000,"sha256":"00"}'}) == {}
