"""Writes docs/report.schema.json from the types: ``python -m srm.domain.moves.report.schema``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

from srm.domain.moves.report.report import report_schema
from srm.generating import write

DEFAULT_PATH: Final = Path("docs/report.schema.json")


def render() -> str:
    """Return the content of the file."""
    return json.dumps(_for_readers(report_schema()), indent=2, ensure_ascii=False) + "\n"


def _for_readers(part: Any) -> Any:
    """Remove titles, which repeat the names, and the ``Raises`` sections of descriptions."""
    if isinstance(part, list):
        return [_for_readers(item) for item in part]
    if not isinstance(part, dict):
        return part
    found = {key: _for_readers(value) for key, value in part.items() if key != "title"}
    if isinstance(found.get("description"), str):
        text, _, _ = found["description"].partition("\n\nRaises:")
        found["description"] = text.replace("``", "`")
    return found


def main(arguments: list[str]) -> None:
    """Write the schema to the given file, by default into docs/."""
    write(lambda _: render(), DEFAULT_PATH, __doc__, arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
