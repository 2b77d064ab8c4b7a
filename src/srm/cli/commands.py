"""Commands of the programs, read from the table commands.txt.

Help and completion need this table alone; a module is imported when its command runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final


@dataclass
class Entry:
    """A command, or a group of commands.

    ``target``: module and function of a command, as ``module:function``.
    ``default``: command of a group that takes what names none of its commands.
    ``help``: one line; ``more``: lines of the paragraphs after it.
    ``prints``: type of what it prints with ``--json``, see :mod:`srm.cli.schemas`.
    """

    target: str = ""
    default: str = ""
    help: str = ""
    more: list[str] = field(default_factory=list)
    prints: str = ""
    examples: list[str] = field(default_factory=list)
    commands: dict[str, Entry] = field(default_factory=dict)


def _read() -> dict[str, Entry]:
    root = entry = Entry()
    for line in Path(__file__).with_name("commands.txt").read_text("utf-8").splitlines():
        kind, _, text = line.partition(" ")
        if kind in {"command", "group"}:
            path, _, target = text.partition(" = ")
            entry = Entry(target) if kind == "command" else Entry(default=target)
            *above, name = path.split()
            group = root
            for each in above:
                group = group.commands[each]
            group.commands[name] = entry
        elif kind == "example":
            entry.examples.append(text)
        elif kind == "more":
            entry.more.append(text)
        elif kind in {"help", "prints"}:
            setattr(entry, kind, text)
    return root.commands


PROGRAMS: Final = _read()
SRM: Final = PROGRAMS["srm"].commands
CONTROL: Final = PROGRAMS["srm-control"].commands
SERVICE: Final = PROGRAMS["srm-service"].commands
