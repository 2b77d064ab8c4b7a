"""Docstrings and messages keep to the language rules of CONTRIBUTING."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.unit.test_docs import AVOIDED

ROOT = Path(__file__).parents[2]
QUESTION = re.compile(r"^(What|Which|How|Who|Where|Whether|Whatever|Whoever)\b")
NEGATED_NOUN = re.compile(
    r"(?<!there )\b(?:is|are|was|were) no (?!longer|more)[a-z]", re.IGNORECASE
)
CODE = re.compile(r"``.*?``|^ *\w+:", re.DOTALL | re.MULTILINE)
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@cache
def sources() -> dict[str, ast.Module]:
    return {
        path.relative_to(ROOT).as_posix(): ast.parse(path.read_text("utf-8"))
        for folder in ("src", "plugins", "dags", "spark_jobs")
        for path in sorted((ROOT / folder).rglob("*.py"))
    }


def strings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Return docstrings and texts of more than two words, with their lines."""
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and len(text.split()) > 2:
            yield node.lineno, CODE.sub("", text)


def test_texts_avoid_the_words_that_contributing_lists() -> None:
    found = [
        f"{path}:{line} {hit.group()}"
        for path, tree in sources().items()
        for line, text in strings(tree)
        for pattern in (AVOIDED, NEGATED_NOUN)
        if (hit := pattern.search(text))
    ]

    assert found == []


def test_docstrings_do_not_open_with_a_question_word() -> None:
    found = [
        f"{path}:{getattr(node, 'lineno', 1)}"
        for path, tree in sources().items()
        for node in ast.walk(tree)
        if isinstance(node, DOCUMENTED) and QUESTION.match(ast.get_docstring(node) or "")
    ]

    assert found == []
