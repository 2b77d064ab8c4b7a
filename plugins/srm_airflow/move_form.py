"""The form of a move, from the settings of a move, with the topics and groups that it offers.

The names are kept in Airflow's variables, one for each flow. Parsing a DAG file must not query a
cluster, and the form of an unplanned move must show what was there before. So the topic sync of a
flow writes what it sees by Airflow's API, which works from any worker, and the forms read that.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import Param, Variable, get_parsing_context
from airflow.sdk.exceptions import AirflowRuntimeError

from srm.config.model import Config
from srm.domain.moves.request import FORM, SECTIONS, MoveSetting, ends
from srm.domain.names.topics import Flow
from srm.errors import SrmError
from srm_airflow.settings import dag_id

if TYPE_CHECKING:
    from srm.engine.ports import FlowContext

logger = logging.getLogger(__name__)

MOST: Final = 2000
"""A form with more choices is of no use to anybody, and each parse reads them."""


@dataclass(frozen=True, slots=True)
class Choices:
    """Names in order: original topics, and groups."""

    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


def read_choices(config: Config, clusters: Sequence[str]) -> Choices:
    """Return what the flows between some clusters have noted; nothing where none has yet.

    Nor in a task that is about to run: it needs no form.
    """
    if get_parsing_context().task_id is not None:
        return Choices()
    among = [flow for flow in config.flows if {flow.source, flow.target} <= set(clusters)]
    found = list(map(_read_variable, among))
    return Choices(
        tuple(sorted({topic for one in found for topic in one.topics})),
        tuple(sorted({group for one in found for group in one.groups})),
    )


def note(context: FlowContext) -> None:
    """Note what a flow has to offer; what fails is logged, the forms show what they did before."""
    from srm.engine.moves.reading import movable  # noqa: PLC0415 - not for parsing

    flow = context.config.flow
    try:
        topics, groups = movable(context)
        seen = Choices(topics[:MOST], groups[:MOST])
        if seen != _read_variable(flow):
            Variable.set(variable_of(flow), asdict(seen), serialize_json=True)
    except (SrmError, AirflowRuntimeError) as error:
        logger.warning("The form of moves %s keeps its choices: %s", flow, error)


def variable_of(flow: Flow) -> str:
    return dag_id(f"choices_{flow.source}_to_{flow.target}")


def _read_variable(flow: Flow) -> Choices:
    name = variable_of(flow)
    try:
        raw: Any = Variable.get(name, default=None, deserialize_json=True)
        if raw is None:
            return Choices()
        return Choices(tuple(map(str, raw["topics"])), tuple(map(str, raw["groups"])))
    except (AirflowRuntimeError, OSError, ValueError, KeyError, TypeError) as error:
        # A form without choices is better than none.
        logger.warning("Variable %s cannot be used: %r", name, error)
        return Choices()


_TYPES: Final = {"switch": "boolean", "seconds": "number", "names": "array", "list": "array"}


def form(clusters: Sequence[str], names: Choices) -> dict[str, Param]:
    """Return the fields for moves between some clusters, with the names that they can offer."""
    ordered = sorted(FORM.values(), key=lambda each: SECTIONS.index(each.section))
    return {each.name: _param(_offer(each, clusters, names)) for each in ordered}


def _offer(setting: MoveSetting, clusters: Sequence[str], names: Choices) -> MoveSetting:
    """Give a setting the choices that these clusters have for it."""
    pair = len(clusters) == 2
    match setting.name:
        case "operation" if pair:
            ways = {name: " -> ".join(ends(clusters, name, None, None)) for name in setting.choices}
            choices = {name: f"{name}: {way}" for name, way in ways.items()}
        case "source" | "target":
            unnamed = "as the operation says" if pair else "choose one"
            choices = {"": unnamed, **{name: name for name in clusters}}
        case "topics":
            choices = {name: name for name in names.topics}
        case "groups" | "exclude_groups":
            choices = {name: name for name in names.groups}
        case _:
            return setting
    return replace(setting, choices=choices)


def _param(setting: MoveSetting) -> Param:
    """Return the field; a list without choices takes lines of text.

    Airflow disables its Trigger button while a field is empty, unless its type has null. REST
    takes an empty text, too.
    """
    of, default = _TYPES.get(setting.kind, "string"), setting.default
    has_none = of != "string" or not default
    schema: dict[str, Any] = {"type": [of, "null"] if has_none else of, "title": setting.title}
    if of == "array":
        schema["items"], default = {"type": "string"}, list(default)
    if setting.kind == "seconds":
        schema["minimum"], schema["maximum"] = setting.bounds
    if setting.choices:
        named = list(filter(None, setting.choices))
        none = [None] if has_none and of == "string" else []
        schema["examples" if of == "array" else "enum"] = [*none, *named, *("" for _ in none)]
    if setting.meanings:
        schema["values_display"] = {name or "null": text for name, text in setting.choices.items()}
    default = None if default == "" else default
    return Param(default, description=setting.help, section=setting.section, **schema)
