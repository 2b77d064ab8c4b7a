"""Additions to Airflow: links of tasks to the pages of srm, and ``airflow srm ...``.

Commands take logins from Airflow's connections.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from airflow.sdk import BaseOperatorLink

from srm_airflow.compat import conf

if TYPE_CHECKING:
    from airflow.cli.cli_config import ActionCommand
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

PAGES: Final = "/srm/ui"


class RunLink(BaseOperatorLink):
    """Leads from a task to the page of the move or flow that it works on."""

    name = "srm"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        del operator
        base = conf.get("api", "base_url", fallback="").rstrip("/")
        run = f"{quote(ti_key.dag_id)}/{quote(ti_key.run_id)}"
        return f"{base}{PAGES}/runs/{run}?{urlencode({'task': ti_key.task_id})}"


def commands() -> list[ActionCommand]:
    """Return the command that the provider adds to ``airflow``."""
    from airflow.cli.cli_config import ActionCommand, Arg  # noqa: PLC0415 - not for tasks

    words = Arg(("words",), nargs=argparse.REMAINDER, help="as of `srm`, such as status --json")
    return [ActionCommand("srm", "Status, moves and control of Kafka replication", run, (words,))]


def run(arguments: Any) -> None:
    """Run a command of srm in this process, which can read connections."""
    from srm.cli.main import main  # noqa: PLC0415 - each command of Airflow imports this
    from srm_airflow import connections  # noqa: F401, PLC0415 - has this process read them

    sys.argv = ["airflow srm", *arguments.words]
    main()
