"""``srm completion``: scripts that let a shell complete commands, options and names."""

from __future__ import annotations

import logging
import os
import sys
from typing import Annotated, Final, Literal

import typer

_PROGRAMS: Final = ("srm", "srm-control")
_BASH: Final = "# Flows are written P:B.\nCOMP_WORDBREAKS=${COMP_WORDBREAKS//:/}"


def completion(
    shell: Annotated[
        Literal["bash", "zsh", "fish"], typer.Argument(metavar="SHELL", help="bash, zsh or fish.")
    ],
) -> None:
    """Print the completion of a shell for srm and srm-control: commands, flows and names.

    Flows come from the configuration. Topics, groups and moves are read from the clusters, which
    have two seconds.
    """
    from typer._completion_shared import get_completion_script

    parts = [_BASH] if shell == "bash" else []
    parts += [
        get_completion_script(prog_name=name, complete_var=_variable(name), shell=shell)
        for name in _PROGRAMS
    ]
    sys.stdout.write("\n".join(parts) + "\n")


def prepare(program: str) -> None:
    """Let typer answer where a shell wants completions, and log nothing into its line."""
    if _variable(program) in os.environ:
        from typer._completion_classes import completion_init

        completion_init()
        logging.disable()


def _variable(program: str) -> str:
    return f"_{program}_COMPLETE".replace("-", "_").upper()
