"""Where Airflow's own pages are: the DAG that moves a pair of clusters, and its runs. Pure.

The web interface of Airflow 3.3 has no address that fills in the form of a DAG, so the pages have
a form of their own that starts the same DAG through Airflow's API, as the person who uses it.
"""

from __future__ import annotations

import re
from itertools import combinations
from typing import Final
from urllib.parse import quote

from srm.config.model import Config
from srm.domain.moves.records.request import run_move_id
from srm.domain.names.topics import Flow

FAILOVER: Final = "srm_failover"
_OPERATIONS: Final = ("failover", "failback")


class Airflow:
    """Addresses in Airflow.

    Args:
        config: the configuration; ``service.airflow.url`` says where Airflow is, empty: where the
            pages are, as they are shown inside it.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self.url = config.service.airflow_url.rstrip("/")

    def dag(self, flow: Flow) -> str:
        """Return the id of the DAG that moves clients along a flow."""
        pair = next(
            (
                pair
                for pair in combinations(self._config.clusters, 2)
                if {*pair} == {flow.source, flow.target}
            ),
            None,
        )
        return ".".join((FAILOVER, *pair)) if pair else FAILOVER

    def dag_page(self, flow: Flow) -> str:
        """Return the address of that DAG's page."""
        return f"{self.url}/dags/{quote(self.dag(flow))}"

    def runs_page(self, flow: Flow, move_id: str) -> str:
        """Return the address of the list of runs that may have made a move."""
        return f"{self.dag_page(flow)}/runs?run_id_pattern={quote(run_pattern(move_id))}"


def move_ids(dag_id: str, run_id: str) -> tuple[str, ...]:
    """Return the ids that the move of a run may have."""
    clusters = dag_id.split(".")[1:]
    return tuple(run_move_id(operation, clusters, run_id) for operation in _OPERATIONS)


def run_pattern(move_id: str) -> str:
    """Return what the id of the run that made a move looks like, as SQL's LIKE has it.

    An id of a move has dashes where the run's has what an id cannot have, and ends with a digest.
    """
    name = move_id.partition("-")[2].rpartition("-")[0]
    return re.sub(r"-", "_", name) + "%"
