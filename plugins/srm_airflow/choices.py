"""Topics and groups that the forms of moves offer: kept in Airflow's variables, one for each flow.

Parsing a DAG file must not query a cluster, and the form of an unplanned move must show what was
there before. So the topic sync of a flow writes what it sees by Airflow's API, which works from any
worker, and the forms read that.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import Variable, get_parsing_context
from airflow.sdk.exceptions import AirflowRuntimeError

from srm.config.model import Config
from srm.domain.names.topics import Flow
from srm.errors import SrmError
from srm_airflow.settings import dag_id

if TYPE_CHECKING:
    from srm.engine.ports import FlowContext

logger = logging.getLogger(__name__)

MOST: Final = 2000
"""A form with more choices is of no use to anybody, and each parse reads them."""


@dataclass(frozen=True, slots=True)
class Choices:
    """Names in order: original topics, and groups."""

    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


def read_choices(config: Config, clusters: Sequence[str]) -> Choices:
    """Return what the flows between some clusters have noted; nothing where none has yet.

    Nor in a task that is about to run: it needs no form.
    """
    if get_parsing_context().task_id is not None:
        return Choices()
    found = [
        _read_variable(flow) for flow in config.flows if {flow.source, flow.target} <= set(clusters)
    ]
    return Choices(
        tuple(sorted({topic for one in found for topic in one.topics})),
        tuple(sorted({group for one in found for group in one.groups})),
    )


def note(context: FlowContext) -> None:
    """Note what a flow has to offer; what fails is logged, the forms show what they did before."""
    from srm.engine.moves.planning.reading import movable  # noqa: PLC0415 - not for parsing

    flow = context.config.flow
    try:
        topics, groups = movable(context)
        seen = Choices(topics[:MOST], groups[:MOST])
        if seen != _read_variable(flow):
            Variable.set(variable_of(flow), asdict(seen), serialize_json=True)
    except (SrmError, AirflowRuntimeError) as error:
        logger.warning("The form of moves %s keeps its choices: %s", flow, error)


def variable_of(flow: Flow) -> str:
    """Return the variable of Airflow with the choices of a flow."""
    return dag_id(f"choices_{flow.source}_to_{flow.target}")


def _read_variable(flow: Flow) -> Choices:
    name = variable_of(flow)
    try:
        raw: Any = Variable.get(name, default=None, deserialize_json=True)
        if raw is None:
            return Choices()
        return Choices(tuple(map(str, raw["topics"])), tuple(map(str, raw["groups"])))
    except (AirflowRuntimeError, OSError, ValueError, KeyError, TypeError) as error:
        # A form without choices is better than none.
        logger.warning("Variable %s cannot be used: %r", name, error)
        return Choices()
