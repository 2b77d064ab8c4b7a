"""What stands in a command that somebody copies is a word, whatever it holds."""

from __future__ import annotations

import shlex

from hypothesis import given
from hypothesis import strategies as st

from srm.domain.shell import quoted


@given(st.text())
def test_a_shell_reads_a_quoted_word_as_it_was(word: str) -> None:
    assert shlex.split(f"srm why {quoted(word)} --json") == ["srm", "why", word, "--json"]
