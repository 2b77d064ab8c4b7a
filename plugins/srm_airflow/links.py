"""Links of tasks to srm's own pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlencode

from airflow.sdk import BaseOperatorLink

from srm_airflow.compat import conf

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

PAGES: Final = "/srm/ui"


class RunLink(BaseOperatorLink):
    """Leads from a task to the page of the move or flow that it works on."""

    name = "srm"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the address of the page."""
        del operator
        base = conf.get("api", "base_url", fallback="").rstrip("/")
        run = f"{quote(ti_key.dag_id)}/{quote(ti_key.run_id)}"
        return f"{base}{PAGES}/runs/{run}?{urlencode({'task': ti_key.task_id})}"
