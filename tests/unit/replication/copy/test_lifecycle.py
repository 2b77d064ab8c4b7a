"""Who may change a partition's state."""

from __future__ import annotations

import ast
from pathlib import Path

import srm.replication

ROOT = Path(srm.replication.__file__).parent


def foreign_writes(path: Path) -> list[str]:
    """Return the assignments to fields of a variable that is called copy."""
    targets = [
        target
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    ]
    return [
        f"{path.name}:{part.lineno} copy.{part.attr}"
        for target in targets
        for part in (target.elts if isinstance(target, ast.Tuple) else [target])
        if isinstance(part, ast.Attribute)
        and isinstance(part.value, ast.Name)
        and part.value.id == "copy"
    ]


def test_only_a_partition_changes_its_own_state() -> None:
    found = [line for path in sorted(ROOT.rglob("*.py")) for line in foreign_writes(path)]

    assert found == []
