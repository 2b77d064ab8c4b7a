"""The form of a move, from the settings of a move."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from airflow.sdk import Param

from srm.domain.moves.records.request import FORM, SECTIONS, MoveSetting, ends
from srm_airflow.choices import Choices

_LIST: Final = {"type": ["array", "null"], "items": {"type": "string"}}
_TYPES: Final[dict[str, dict[str, Any]]] = {
    "switch": {"type": "boolean"},
    "seconds": {"type": "number"},
    "names": _LIST,
    "list": _LIST,
}


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
        case "topics" | "groups":
            choices = {name: name for name in getattr(names, setting.name)}
        case _:
            return setting
    return replace(setting, choices=choices)


def _param(setting: MoveSetting) -> Param:
    """Return the field; a list without choices takes lines of text."""
    schema = {**_TYPES.get(setting.kind, {"type": "string"}), "title": setting.title}
    if setting.kind == "seconds":
        schema["minimum"], schema["maximum"] = setting.bounds
    if setting.choices:
        schema["examples" if "items" in schema else "enum"] = list(setting.choices)
    if setting.meanings:
        schema["values_display"] = setting.choices
    default = list(setting.default) if "items" in schema else setting.default
    return Param(default, description=setting.help, section=setting.section, **schema)
