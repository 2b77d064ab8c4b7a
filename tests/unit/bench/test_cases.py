from __future__ import annotations

import pytest
from bench.cases import CASES, by_surroundings


@pytest.mark.parametrize("group", by_surroundings(CASES).values(), ids=lambda g: g[0].name)
def test_a_topic_that_was_there_before_the_engine_is_the_first_case_of_its_session(group):
    assert all(case.kind != "compacted" for case in group[1:])
