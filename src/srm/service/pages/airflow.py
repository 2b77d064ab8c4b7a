"""Addresses in Airflow of the DAG that moves a pair of clusters, and of its runs. Pure.

The web interface of Airflow 3.3 has no address that fills in the form of a DAG. The pages therefore
have their own form, which starts the DAG through Airflow's API as the signed-in user.
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
        config: the configuration; ``service.airflow.url`` is the address of Airflow, or empty if
            Airflow shows these pages itself.
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
        """Return the address of the page of that DAG."""
        return f"{self.url}/dags/{quote(self.dag(flow))}"

    def runs_page(self, flow: Flow, move_id: str) -> str:
        """Return the address of the list of runs that may have made a move."""
        return f"{self.dag_page(flow)}/runs?run_id_pattern={quote(run_pattern(move_id))}"


def move_ids(dag_id: str, run_id: str) -> tuple[str, ...]:
    """Return the ids that the move of a run may have."""
    clusters = dag_id.split(".")[1:]
    return tuple(run_move_id(operation, clusters, run_id) for operation in _OPERATIONS)


def run_pattern(move_id: str) -> str:
    """Return a pattern of SQL's LIKE for the id of the run that made a move.

    The id of a move replaces invalid characters of the run's id by dashes and ends with a digest.
    """
    name = move_id.partition("-")[2].rpartition("-")[0]
    return re.sub(r"-", "_", name) + "%"
