"""JSON schemas of what commands print with ``--json``, made from the types of the results."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import reduce
from importlib import import_module
from operator import or_
from typing import Annotated, Any, Final

import typer
from typing_extensions import TypedDict

from srm.cli.commands import SRM, Entry
from srm.errors import NotFoundError

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_NOTATION: Final[Mapping[str, dict[str, Any]]] = {
    "Flow": {"type": "string", "examples": ["P->B"]},
    "TopicPartition": {
        "type": "object",
        "properties": {"topic": {"type": "string"}, "partition": {"type": "integer"}},
        "required": ["topic", "partition"],
    },
}
"""Types with a notation of their own in documents (:func:`srm.cli.console.document`)."""


class WrittenFile(TypedDict, total=False):
    """The path of a written file, or its text."""

    path: str
    text: str


class ExportedResidue(TypedDict):
    """Number of records, and the files with them."""

    records: int
    files: list[str]


class VerifiedReport(TypedDict):
    """Identity of a report whose signature is valid."""

    move_id: str
    revision: int
    sha256: str
    written_ms: int
    verified: bool


def _documents(entries: Mapping[str, Entry], above: str = "") -> Iterator[tuple[str, str]]:
    for name, entry in entries.items():
        if entry.prints:
            yield f"{above}{name}", entry.prints
        yield from _documents(entry.commands, f"{above}{name} ")


DOCUMENTS: Final = dict(_documents(SRM))
"""Types of documents by command: ``[TYPE]`` is a list, ``{TYPE}`` an object of it, ``|`` is or."""


def _type_of(name: str) -> Any:
    module, _, inner = name.strip("[]{}").partition(":")
    made: Any = getattr(import_module(module), inner)
    return {"[": list[made], "{": dict[str, made]}.get(name[0], made)


def schema_of(command: str) -> dict[str, Any]:
    """Return the schema of a command's document (or NotFoundError); it allows more fields."""
    from srm.domain.text.documents import adapter

    if command not in DOCUMENTS:
        raise NotFoundError(
            f"no schema of {command!r}", f"name one of: {', '.join(sorted(DOCUMENTS))}"
        )
    of = reduce(or_, map(_type_of, DOCUMENTS[command].split("|")))
    schema = adapter(of).json_schema(mode="serialization")
    defined = schema.get("$defs", {})
    defined.update({key: value for key, value in _NOTATION.items() if key in defined})
    return {"$schema": _DIALECT, "$id": f"srm.{command.replace(' ', '-')}/1", **schema}


def schema(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="COMMAND", help="Words of a command, such as failover plan."),
    ] = None,
) -> None:
    if not command:
        typer.echo("\n".join(sorted(DOCUMENTS)))
        return
    typer.echo(json.dumps(schema_of(" ".join(command)), indent=2, ensure_ascii=False))
