"""Names of classes, functions and modules: rules that hold over the whole tree."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
TREES: Final = {
    path.relative_to(ROOT): ast.parse(path.read_text(encoding="utf-8"))
    for folder in ("src", "plugins", "dags", "spark_jobs")
    for path in sorted((ROOT / folder).rglob("*.py"))
}
PARTICIPLE: Final = re.compile(
    "_?(told|known|opened|kept|seen|gone|found|left|held|taken|given|said|meant|"
    "(?!need|feed|seed|speed|embed|shed|exceed|proceed|succeed|breed|bleed)[a-z]{3,}ed)"
)
OF_OTHERS: Final = {"committed"}
"""Names of methods that `FailoverConsumer` shares with confluent's consumer."""


def test_a_public_class_name_has_one_meaning() -> None:
    places = defaultdict(list)
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(f"{path}:{node.lineno}")

    assert len(places) > 500
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_functions_are_named_by_verbs_or_nouns() -> None:
    functions = [
        (f"{path}:{node.lineno}", node.name)
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]

    assert len(functions) > 5000
    assert [
        one for one in functions if PARTICIPLE.fullmatch(one[1]) and one[1] not in OF_OTHERS
    ] == []


@pytest.mark.parametrize(("name", "found"), [("seen", True), ("_noted", True), ("need", False)])
def test_a_participle_is_known_by_its_ending(name: str, found: bool) -> None:
    assert bool(PARTICIPLE.fullmatch(name)) is found
