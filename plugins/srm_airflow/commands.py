"""``airflow srm ...``: the commands of srm, with logins from Airflow's connections."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from airflow.cli.cli_config import ActionCommand, Arg


def commands() -> list[ActionCommand]:
    """Return the command that the provider adds to ``airflow``."""
    words = Arg(("words",), nargs=argparse.REMAINDER, help="as of `srm`, such as status --json")
    return [ActionCommand("srm", "Status, moves and control of Kafka replication", run, (words,))]


def run(arguments: Any) -> None:
    """Run a command of srm in this process, which can read connections."""
    from srm.cli.main import main  # noqa: PLC0415 - each command of Airflow imports this
    from srm_airflow import connections  # noqa: F401, PLC0415 - has this process read them

    sys.argv = ["airflow srm", *arguments.words]
    main()
