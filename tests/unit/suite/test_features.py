"""The table of features names tests that exist, and its page is the generated one."""

from __future__ import annotations

import re

import pytest
from tests.features import PAGE, TESTS, Feature, read, render

FEATURES = [feature for features in read().values() for feature in features]


@pytest.mark.parametrize("feature", FEATURES, ids=lambda feature: feature.name)
def test_the_test_that_shows_a_feature_exists(feature: Feature) -> None:
    path, _, name = feature.test.partition("::")

    if path:
        text = (TESTS / path).read_text("utf-8")
        assert re.search(rf"^ *(async )?def {re.escape(name)}\(", text, re.MULTILINE), feature.test
    else:
        assert re.match(r"(no|open): ", feature.answer), feature


def test_each_feature_has_one_row() -> None:
    names = [feature.name for feature in FEATURES]

    assert len(names) == len(set(names)) > 90


def test_the_page_in_docs_is_the_generated_one() -> None:
    """Run ``python -m tests.features`` after changing tests/features.txt."""
    assert (TESTS.parent / PAGE).read_text("utf-8") == render()
