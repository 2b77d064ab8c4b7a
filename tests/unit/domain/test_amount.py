"""Numbers with their nouns."""

from __future__ import annotations

import pytest

from srm.domain.amount import amount


@pytest.mark.parametrize(
    ("count", "said"), [(0, "0 records"), (1, "1 record"), (1200, "1,200 records")]
)
def test_only_one_is_singular_and_thousands_are_grouped(count: int, said: str) -> None:
    assert amount(count, "record") == said
