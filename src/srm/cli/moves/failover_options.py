"""Settings of a move as options of commands."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, Concatenate, Final, Literal, ParamSpec

import typer

from srm.cli import completing
from srm.domain.moves.records.request import FORM, SETTINGS
from srm.domain.moves.records.setting import MoveSetting

_P = ParamSpec("_P")
_TYPES: Final = {"switch": bool, "seconds": float, "names": list[str] | None}
_UNNAMED: Final = {"names": None, "text": None, "list": ""}
_COMPLETIONS: Final = {
    "source": completing.clusters,
    "target": completing.clusters,
    "topics": completing.topics,
    "groups": completing.groups,
}


def option(name: str) -> Any:
    """Return the option of a setting, as an annotation of a parameter."""
    setting = FORM[name]
    metavars = {"seconds": "SECONDS", "list": "LIST"}
    several = " May be given several times." if setting.kind == "names" else ""
    return typer.Option(
        *(name for name in (setting.option, setting.letter) if name),
        metavar=metavars.get(setting.kind),
        help=f"{description(setting)}{several}",
        autocompletion=_COMPLETIONS.get(name),
    )


def description(setting: MoveSetting) -> str:
    """Return the meaning of a setting with those of its choices."""
    meanings = "; ".join(text for value, text in setting.meanings.items() if value)
    return f"{setting.text} {meanings}." if meanings else setting.text


def with_settings(command: Callable[Concatenate[dict[str, Any], _P], None]) -> Callable[_P, None]:
    """Give a command each setting of a move as an option, and hand it those by name first."""

    @wraps(command)
    def run(*args: _P.args, **given: _P.kwargs) -> None:
        wanted = {setting.name: given.pop(setting.name) for setting in SETTINGS}
        command(
            {name: value for name, value in wanted.items() if value is not None}, *args, **given
        )

    _, *own = signature(command, eval_str=True).parameters.values()
    declared = Signature([*map(_parameter, SETTINGS), *own])
    setattr(run, "__signature__", declared)  # noqa: B010 -- unknown to mypy
    return run


def _parameter(setting: MoveSetting) -> Parameter:
    default = _UNNAMED.get(setting.kind, setting.default)
    if default == "":
        default = None
    of: Any = _TYPES.get(setting.kind, str)
    if setting.kind == "choice":
        of = Literal[tuple(value for value in setting.choices if value)] | None
    annotation: Any = Annotated[of, option(setting.name)]
    return Parameter(setting.name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
