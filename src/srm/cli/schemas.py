"""JSON schemas of what commands print with ``--json``, made from the types of the results."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, Any, Final

import typer
from typing_extensions import TypedDict

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


DOCUMENTS: Final[Mapping[str, str]] = {
    "checkpoints emit": "[srm.engine.groups.checkpoints:CheckpointSummary]",
    "config check": "srm.cli.flows.config:CheckReport",
    "config explain": "[srm.cli.flows.config:Explanation]",
    "config import": f"{__name__}:WrittenFile",
    "config reload": "[srm.cli.flows.replicator:SettingChange]",
    "doctor": "[srm.cli.flows.doctor:Check]",
    "export mm2": "srm.replication.adoption:HandedBack",
    "failover drill": "srm.domain.moves.disaster:Drill",
    "failover plan": "srm.domain.moves.plan:MovePlan",
    "failover redirect": "{srm.domain.moves.progress:Call}",
    "failover release": "srm.domain.moves.progress:MoveProgress",
    "failover report show": "srm.domain.moves.report:MoveReport",
    "failover report verify": f"[{__name__}:VerifiedReport]",
    "failover run": "srm.domain.moves.report:MoveReport",
    "failover status": "srm.domain.moves.gate:SyncStatus",
    "failover unfence": "[builtins:str]",
    "groups list": "[srm.cli.flows.topics:FlowGroups]",
    "groups sync": "[srm.engine.groups.group_sync:GroupSyncSummary]",
    "import mm2": "[srm.cli.flows.importing:ImportOutcome]",
    "import srm": "[srm.cli.flows.importing:ImportOutcome]",
    "init": f"{__name__}:WrittenFile",
    "metrics aggregate": "[srm.engine.metrics.aggregation:AggregationSummary]",
    "metrics show": "[srm.domain.metrics:WindowMetric]",
    "replicator restart": "[srm.engine.flows.supervision:DriverAnswer]",
    "replicator stop": "[srm.engine.flows.supervision:DriverAnswer]",
    "residue export": f"{__name__}:ExportedResidue",
    "residue list": "[srm.engine.recovery:ResidueRange]",
    "restore": "srm.cli.moves.recovery:RestoreOutcome",
    "return status": "srm.engine.recovery:SourceReturn",
    "return settle": "srm.engine.recovery:SettledReturn",
    "rights": "[srm.cli.flows.doctor:RightCommand]",
    "status": "[srm.engine.status.status:FlowStatus]",
    "topics append": "[srm.domain.flow_state.replication_records:AssignedPartition]",
    "topics apply": "[srm.cli.flows.topics:FlowTopicSync]",
    "topics list": "[srm.cli.flows.topics:ListedTopics]",
    "topics plan": "[srm.cli.flows.topics:FlowTopicSync]",
    "topics sync": "[srm.cli.flows.topics:FlowTopicSync]",
    "translate": "srm.engine.groups.translate:TranslatedOffset",
    "verify": "srm.domain.verification.verification:VerificationSummary",
    "why": "[srm.engine.why.answer:Why]",
}
"""Types of documents by command; ``[TYPE]`` is a list of it, ``{TYPE}`` an object of them.

``status`` adds ``health`` to flows and topics, ``metrics show`` the averages.
"""
LINES: Final = ("replicate", "residue show")
"""Commands that print one object a line, not a document."""


def schema_of(command: str) -> dict[str, Any]:
    """Return the schema of a command's document (or NotFoundError); it allows more fields."""
    from srm.domain.text.documents import adapter

    if command not in DOCUMENTS:
        raise NotFoundError(
            f"no schema of {command!r}", f"name one of: {', '.join(sorted(DOCUMENTS))}"
        )
    name = DOCUMENTS[command]
    module, _, inner = name.strip("[]{}").partition(":")
    made: Any = getattr(import_module(module), inner)
    of = {"[": list[made], "{": dict[str, made]}.get(name[0], made)
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
    """Print the JSON schema of what a command prints with --json; without one list the commands."""
    if not command:
        typer.echo("\n".join(sorted(DOCUMENTS)))
        return
    typer.echo(json.dumps(schema_of(" ".join(command)), indent=2, ensure_ascii=False))
