"""Write docs/commands.md: every command and option of srm, from their own help.

python -m srm.cli.docs
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import typer

from srm.cli.main import app, help_row
from srm.cli.moves.failover import description
from srm.domain.moves.request import FORM
from srm.files import write

DEFAULT_PATH: Final = Path("docs/commands.md")

_HEAD: Final = """\
# Commands

<!-- Written by `python -m srm.cli.docs` from the help of the commands. -->

`srm COMMAND --help` shows the same. `srm-control` is in [operate](operate.md#topics-and-groups), `srm-service` in [service](service.md).
`eval "$(srm completion bash)"` in `~/.bashrc` completes commands, options, flows, topics, groups and moves; zsh and fish have it, too.
"""  # noqa: E501
_COMMON: Final = 3
"""Number of commands from which on an option is described once, in the head."""
_SETTINGS: Final = "settings of a move"


def render() -> str:
    root: Any = typer.main.get_command(app)
    context = typer.Context(root, info_name="srm")
    found = [_Described(*each) for each in _commands(root, context, 1)]
    counts = Counter(row for one in found[1:] for row in one.rows)
    common = {row: None for row, count in counts.items() if count >= _COMMON}
    sections = [_HEAD, *found[0].lines(()), ""]
    sections += ["Each command also takes those of these options that it names:", ""]
    sections += [*map(_item, common), ""]
    for one in found[1:]:
        sections += [f"{'#' * one.level} `{one.context.command_path}`", *one.lines(tuple(common))]
    return "\n".join([*sections, _settings()])


def _commands(
    command: Any, context: typer.Context, level: int
) -> Iterator[tuple[Any, typer.Context, int]]:
    yield command, context, level
    for name, child in getattr(command, "commands", {}).items():
        inner = typer.Context(child, info_name=name, parent=context)
        yield from _commands(child, inner, level + 1)


@dataclass(frozen=True)
class _Described:
    """A command on the page."""

    command: Any
    context: typer.Context
    level: int

    @property
    def rows(self) -> list[tuple[str, str]]:
        """Names and helps of its arguments and options, without settings of a move."""
        own = [p for p in self._parameters if not _is_setting(p, self.context)]
        rows = [help_row(parameter, self.context) for parameter in own]
        return [row for row in rows if row is not None and row[0] != "--help"]

    @property
    def _parameters(self) -> list[Any]:
        found: list[Any] = self.command.get_params(self.context)
        return found

    def lines(self, common: Sequence[tuple[str, str]]) -> Iterator[str]:
        """Return help, options and examples; of ``common`` options only the names."""
        rows = self.rows
        named = [_option(row) for row in rows if row in common]
        options = [f"Options: {', '.join(named)}."] if named else []
        yield " ".join([_unwrap(self.command.help), *options])
        yield from (_item(row) for row in rows if row not in common)
        if any(_is_setting(parameter, self.context) for parameter in self._parameters):
            yield self._settings()
        if examples := getattr(self.command, "examples", ()):
            yield f"* Example: {'; '.join(f'`{example}`' for example in examples)}"
        if self.command.epilog:
            yield f"\n{_unwrap(self.command.epilog)}"

    def _settings(self) -> str:
        taken = {option for parameter in self._parameters for option in parameter.opts}
        missing = [f"`{e.option}`" for e in FORM.values() if e.option and e.option not in taken]
        but = f", without {', '.join(missing)}" if missing else ""
        return f"* The [{_SETTINGS}](#{_SETTINGS.replace(' ', '-')}){but}."


def _option(row: tuple[str, str]) -> str:
    """Return the long name of a common option, and whether a command requires it."""
    name, text = row
    return f"`{name.rpartition(', ')[2]}`{' (required)' if text.endswith('[required]') else ''}"


def _item(row: tuple[str, str]) -> str:
    name, text = row
    return f"* `{name}`: {text}"


def _unwrap(text: str | None) -> str:
    return " ".join((text or "").split())


def _is_setting(parameter: Any, context: typer.Context) -> bool:
    """Say whether an option is a setting of a move, in a command that takes all of them."""
    moves = context.command_path in {"srm failover plan", "srm failover run"}
    return moves and any(each.option in parameter.opts for each in FORM.values() if each.option)


def _settings() -> str:
    rows = [
        f"## {_SETTINGS.capitalize()}",
        "",
        "The forms of Airflow and of *Plan a move*, and the conf of a run, have these keys.",
        "",
        "| key | option | default | meaning |",
        "|---|---|---|---|",
    ]
    for each in FORM.values():
        option = f"`{each.option}`" if each.option else ""
        default = f"{each.default:g}" if each.kind == "seconds" else each.default or ""
        rows.append(f"| `{each.name}` | {option} | {default} | {description(each)} |")
    return "\n".join(rows) + "\n"


def main(arguments: list[str]) -> None:
    write(lambda _: render(), DEFAULT_PATH, __doc__, arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
