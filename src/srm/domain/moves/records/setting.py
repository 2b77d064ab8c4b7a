"""Settings of a move, each declared once; commands, forms, pages and documents derive from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from functools import cache
from typing import Any, Final, Literal, TypeVar, get_args, get_type_hints

from pydantic import ValidationError

from srm.domain.text.documents import adapter
from srm.errors import UsageError

Kind = Literal["switch", "seconds", "names", "list", "choice", "text"]
SECTIONS: Final = ("Move", "Time limits", "Details")
_D = TypeVar("_D")


@dataclass(frozen=True, slots=True)
class MoveSetting:
    """One setting as shown to operators, as an annotation of the field of its value.

    ``text``: its first sentence is the title.
    ``choices``: values that the field's type lists, with the text that a form shows for each.
    ``bounds``: lowest and highest number of seconds.
    ``option``: name in commands; derived if empty, None if commands do not have it.
    ``default``: default of the field; its first choice or an empty text if it is required.
    """

    text: str
    choices: Mapping[str, str] = field(default_factory=dict)
    bounds: tuple[float, float] = (0, 0)
    section: str = SECTIONS[0]
    option: str | None = ""
    letter: str = ""
    name: str = ""
    default: Any = ""

    @property
    def kind(self) -> Kind:
        """The kind of its values: ``list`` has choices and an order, ``names`` are free text."""
        if isinstance(self.default, bool):
            return "switch"
        if isinstance(self.default, float):
            return "seconds"
        if isinstance(self.default, tuple):
            return "list" if self.choices else "names"
        return "choice" if self.choices else "text"

    @property
    def title(self) -> str:
        """The name in a form, with the unit."""
        return self.text.partition(". ")[0] + (" (seconds)" if self.kind == "seconds" else "")

    @property
    def help(self) -> str:
        """The text without its title."""
        return self.text.partition(". ")[2]

    @property
    def meanings(self) -> dict[str, str]:
        """Choices with a label other than their value."""
        return {value: label for value, label in self.choices.items() if label != value}


def limit(lowest: float, highest: float, text: str, option: str | None = "") -> MoveSetting:
    """Declare a number of seconds."""
    text = f"{text} {lowest:g} to {highest:g} seconds."
    return MoveSetting(text, bounds=(lowest, highest), section="Time limits", option=option)


def detail(text: str, **choices: str) -> MoveSetting:
    """Declare a setting that few moves need."""
    return MoveSetting(text, choices, section="Details")


def _settings(of: type) -> tuple[MoveSetting, ...]:
    hints = get_type_hints(of, include_extras=True)
    return tuple(_of_field(each, hints[each.name]) for each in fields(of))


# A type is hashable, but mypy rejects it.
settings_of: Final[Callable[[Any], tuple[MoveSetting, ...]]] = cache(_settings)
"""Return the settings that a dataclass declares, in the order of its fields."""


def require_bounds(of: Any) -> None:
    """Check the bounds of a dataclass of settings."""
    for setting in settings_of(type(of)):
        value, (lowest, highest) = getattr(of, setting.name), setting.bounds
        if setting.kind == "seconds" and not lowest <= value <= highest:
            own = f" ({setting.option})" if setting.option not in {None, _option(setting)} else ""
            found = "negative" if value < 0 else f"{value:g}"
            limits = f"give {lowest:g} to {highest:g} seconds"
            raise UsageError(f"{setting.name}{own} of the move is {found}: {limits}")


def read(of: type[_D], given: Mapping[str, Any]) -> _D:
    """Build a dataclass of settings from a form or JSON object.

    Raises:
        UsageError: a key is unknown or missing, or a value cannot be used.
    """
    try:
        return adapter(of).validate_python(dict(given))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "request"
        if first["type"] in {"unexpected_keyword_argument", "extra_forbidden"}:
            known = ", ".join(setting.name for setting in settings_of(of))
            raise UsageError(f"move has no setting {where!r}: known are {known}") from None
        raise UsageError(f"move setting {where!r} cannot be used: {first['msg']}") from None


def _of_field(each: Field[Any], hint: Any) -> MoveSetting:
    [setting] = (part for part in hint.__metadata__ if isinstance(part, MoveSetting))
    shown = {value: f"{value}: {meaning}" for value, meaning in setting.choices.items()}
    choices = {value: shown.get(value, value or "as configured") for value in _values(hint)}
    default = next(iter(choices), "") if each.default is MISSING else each.default
    named = replace(setting, name=each.name, choices=choices, default=default)
    return replace(named, option=_option(named)) if setting.option == "" else named


def _option(setting: MoveSetting) -> str:
    return f"--{setting.name.replace('_', '-')}"


def _values(hint: Any) -> Iterator[str]:
    """Yield the values that a type lists."""
    for part in get_args(hint):
        yield from (part,) if isinstance(part, str) else _values(part)
