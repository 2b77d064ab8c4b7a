"""Write docs/commands.md: every command and option of srm, from their own help.

python -m srm_lab.docs.commands
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import typer

from srm.cli.main import app, help_row
from srm.cli.moves.failover import description
from srm.domain.moves.request import FORM
from srm_lab.docs.page import write

DEFAULT_PATH: Final = Path("docs/commands.md")

_HEAD: Final = """\
# Commands

<!-- Written by `python -m srm_lab.docs.commands` from the help of the commands. -->

`srm COMMAND --help` shows the same. `srm-control` is in [operate](operate.md#topics-and-groups), `srm-service` in [service](service.md).
`eval "$(srm completion bash)"` in `~/.bashrc` completes commands, options, flows, topics, groups and moves; zsh and fish have it, too.
"""  # noqa: E501
_COMMON: Final = 3
"""Number of commands from which on an option is described once, in the head."""
_SETTINGS: Final = "settings of a move"


def render() -> str:
    root: Any = typer.main.get_command(app)
    (_, top), *found = _commands(root, typer.Context(root, info_name="srm"))
    counts = Counter(row for command, context in found for row in _rows(command, context))
    common = tuple(row for row, count in counts.items() if count >= _COMMON)
    sections = [_HEAD, *_lines(root, top, ()), ""]
    sections += ["Each command also takes those of these options that it names:", ""]
    sections += [*map(_item, common), ""]
    for command, context in found:
        path = context.command_path
        sections += [f"{'#' * len(path.split())} `{path}`", *_lines(command, context, common)]
    return "\n".join([*sections, _settings()])


def _commands(command: Any, context: typer.Context) -> Iterator[tuple[Any, typer.Context]]:
    yield command, context
    for name, child in getattr(command, "commands", {}).items():
        yield from _commands(child, typer.Context(child, info_name=name, parent=context))


def _rows(command: Any, context: typer.Context) -> list[tuple[str, str]]:
    """Return names and helps of arguments and options, without settings of a move."""
    own = [each for each in command.get_params(context) if not _is_setting(each, context)]
    rows = [help_row(parameter, context) for parameter in own]
    return [row for row in rows if row is not None and row[0] != "--help"]


def _lines(
    command: Any, context: typer.Context, common: Sequence[tuple[str, str]]
) -> Iterator[str]:
    """Yield help, options and examples; of ``common`` options only the names."""
    rows, parameters = _rows(command, context), command.get_params(context)
    named = [_option(row) for row in rows if row in common]
    options = [f"Options: {', '.join(named)}."] if named else []
    yield " ".join([_unwrap(command.help), *options])
    yield from (_item(row) for row in rows if row not in common)
    if any(_is_setting(parameter, context) for parameter in parameters):
        taken = {option for parameter in parameters for option in parameter.opts}
        missing = [f"`{e.option}`" for e in FORM.values() if e.option and e.option not in taken]
        but = f", without {', '.join(missing)}" if missing else ""
        yield f"* The [{_SETTINGS}](#{_SETTINGS.replace(' ', '-')}){but}."
    if examples := getattr(command, "examples", ()):
        yield f"* Example: {'; '.join(f'`{example}`' for example in examples)}"
    if command.epilog:
        yield f"\n{_unwrap(command.epilog)}"


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
