"""Topics and groups that the forms of moves offer: kept in files, one for each flow.

Parsing a DAG file must not ask a cluster, and the form of an unplanned move must show what was
there before. So the topic sync of a flow writes down what it sees, and the forms read that.

Files and not Airflow's variables: the first variable that a DAG file reads makes the DAG processor
build a whole API server, which has cost a loaded machine 30 seconds, and the form of the failover.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from airflow.sdk import get_parsing_context

from srm.config.model import Config
from srm.domain.names.topics import Flow
from srm.errors import SrmError
from srm_airflow.compat import conf

if TYPE_CHECKING:
    from srm.engine.ports import FlowContext

logger = logging.getLogger(__name__)

FOLDER_VARIABLE: Final = "SRM_CHOICES"
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
        _read_choices_file(flow)
        for flow in config.flows
        if {flow.source, flow.target} <= set(clusters)
    ]
    return Choices(
        tuple(sorted({topic for one in found for topic in one.topics})),
        tuple(sorted({group for one in found for group in one.groups})),
    )


def note(context: FlowContext) -> None:
    """Note what a flow has to offer; what fails is logged, the forms show what they did before."""
    from srm.engine.moves.planning.topics import movable  # noqa: PLC0415 - not for parsing

    flow = context.config.flow
    try:
        topics, groups = movable(context)
        seen = Choices(topics[:MOST], groups[:MOST])
        if seen != _read_choices_file(flow):
            _write(file_of(flow), json.dumps(asdict(seen)))
    except (SrmError, OSError) as error:
        logger.warning("The form of moves %s keeps its choices: %s", flow, error)


def file_of(flow: Flow) -> Path:
    """Return where the choices of a flow are stored.

    In $SRM_CHOICES, else next to the logs, which workers and DAG processor often share. Where they
    share neither, forms take names as text.
    """
    folder = os.environ.get(FOLDER_VARIABLE)
    beside = (
        Path(folder) if folder else Path(conf.get("logging", "base_log_folder")) / "srm_choices"
    )
    return beside / f"{flow.source}_to_{flow.target}.json"


def _read_choices_file(flow: Flow) -> Choices:
    file = file_of(flow)
    try:
        raw = json.loads(file.read_text("utf-8"))
        return Choices(tuple(map(str, raw["topics"])), tuple(map(str, raw["groups"])))
    except FileNotFoundError:
        return Choices()
    except (OSError, ValueError, KeyError, TypeError) as error:
        # A form without choices is better than none.
        logger.warning("%s cannot be used: %r", file, error)
        return Choices()


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", dir=file.parent, prefix=f".{file.name}.", delete=False
    ) as fresh:
        fresh.write(text)
    Path(fresh.name).chmod(0o644)  # the DAG processor may be another user
    Path(fresh.name).replace(file)
