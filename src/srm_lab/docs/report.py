"""Writes docs/report.schema.json: ``python -m srm_lab.docs.report``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from srm.domain.moves.report import SCHEMA, MoveReport
from srm.domain.text.documents import adapter
from srm_lab.docs.page import write


def render() -> str:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA,
        **adapter(MoveReport).json_schema(mode="serialization"),
    }
    return json.dumps(_for_readers(schema), indent=2, ensure_ascii=False) + "\n"


def _for_readers(part: Any) -> Any:
    if isinstance(part, list):
        return [_for_readers(item) for item in part]
    if not isinstance(part, dict):
        return part
    found = {key: _for_readers(value) for key, value in part.items() if key != "title"}
    if isinstance(found.get("description"), str):
        found["description"] = found["description"].replace("``", "`")
    return found


def main(arguments: list[str]) -> None:
    write(lambda _: render(), Path("docs/report.schema.json"), __doc__, arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
