"""Write docs/commands.md: every command and option of srm, from their own help.

python -m srm.cli.docs
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import typer

from srm.cli.main import app
from srm.cli.moves.failover_options import description
from srm.cli.tree import help_row
from srm.domain.moves.records.request import FORM
from srm.generating import write

DEFAULT_PATH: Final = Path("docs/commands.md")

_HEAD: Final = """\
# Commands

<!-- Written by `python -m srm.cli.docs` from the help of the commands. -->

`srm COMMAND --help` shows the same. `srm-control` is in [operate](operate.md#topics-and-groups),
`srm-service` in [service](service.md).

`eval "$(srm completion bash)"` in `~/.bashrc` completes commands, options, flows, topics, groups
and moves; zsh and fish have it, too.
"""
_SHARED: Final = {"--help", "--json", "--config"}
_SETTINGS: Final = "settings of a move"


def render() -> str:
    """Return the page."""
    command: Any = typer.main.get_command(app)
    context = typer.Context(command, info_name="srm")
    shared = _shared_options(command, context)
    sections = [_HEAD, *_body(command, context), *shared]
    for name, child in command.commands.items():
        sections += _section(child, typer.Context(child, info_name=name, parent=context), 2)
    return "\n".join([*sections, _settings()])


def _section(command: Any, context: typer.Context, level: int) -> Iterator[str]:
    """Return the lines of one command, then those of its subcommands."""
    yield f"{'#' * level} `{context.command_path}`"
    yield from _body(command, context)
    for name, child in getattr(command, "commands", {}).items():
        yield from _section(child, typer.Context(child, info_name=name, parent=context), level + 1)


def _body(command: Any, context: typer.Context) -> Iterator[str]:
    """Return help, arguments and options of a command, without those that all commands share."""
    yield _unwrap(command.help)
    parameters = [p for p in command.get_params(context) if _SHARED.isdisjoint(p.opts)]
    own = [p for p in parameters if not _is_setting(p, context)]
    records = filter(None, (help_row(parameter, context) for parameter in own))
    options = [f"* `{name}`: {text}" for name, text in records]
    if len(own) < len(parameters):
        taken = {option for parameter in parameters for option in parameter.opts}
        missing = [f"`{e.option}`" for e in FORM.values() if e.option and e.option not in taken]
        but = f", without {', '.join(missing)}" if missing else ""
        options.append(f"* The [{_SETTINGS}](#{_SETTINGS.replace(' ', '-')}){but}.")
    yield from options
    if examples := getattr(command, "examples", ()):
        yield f"* Example: {'; '.join(f'`{example}`' for example in examples)}"
    yield ""
    if command.epilog:
        yield f"{_unwrap(command.epilog)}\n"


def _unwrap(text: str | None) -> str:
    """Return a text on one line."""
    return " ".join((text or "").split())


def _is_setting(parameter: Any, context: typer.Context) -> bool:
    """Say whether an option is a setting of a move, in a command that takes all of them."""
    moves = context.command_path in {"srm failover plan", "srm failover run"}
    return moves and any(each.option in parameter.opts for each in FORM.values() if each.option)


def _shared_options(command: Any, context: typer.Context) -> Iterator[str]:
    """Return the options that commands share, as one of them describes them."""
    replicate = command.commands["replicate"]
    inner = typer.Context(replicate, info_name="replicate", parent=context)
    yield "Most commands also take:\n"
    records = [
        help_row(parameter, inner)
        for parameter in replicate.get_params(inner)
        if not _SHARED.isdisjoint(parameter.opts)
    ]
    yield "\n".join(f"* `{name}`: {text}" for name, text in filter(None, records)) + "\n"


def _settings() -> str:
    """Return the table of the settings of a move."""
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
    """Write the page to the given file, by default into docs/."""
    write(lambda _: render(), DEFAULT_PATH, __doc__, arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
