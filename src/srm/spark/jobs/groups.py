"""Consumer groups spread over Spark tasks: for fleets whose groups take one process too long."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TypeVar

from pyspark.sql import SparkSession

from srm.config.model import Config
from srm.domain.names.topics import Flow
from srm.engine.ports import FlowContext
from srm.errors import SrmError
from srm.spark.jobs.spread import cores, spread
from srm.wiring import open_flow

logger = logging.getLogger(__name__)

_S = TypeVar("_S")
_TASKS_PER_CORE = 2
_GROUPS_PER_TASK = 20


def deal(groups: Collection[str], hands: int) -> list[tuple[str, ...]]:
    """Deal groups out like cards, so that neighbours by name (often alike in size) are spread."""
    ordered = sorted(groups)
    return [tuple(ordered[hand::hands]) for hand in range(min(hands, len(ordered)))]


def over_groups(
    spark: SparkSession,
    config: Config,
    flow: Flow,
    groups: Collection[str],
    call: Callable[[FlowContext, Collection[str]], _S],
) -> tuple[list[_S], dict[str, str]]:
    """Run an engine call on the groups in Spark tasks, each with clients of its own.

    ``config``: the whole configuration, as the tasks need it to open the flow.
    ``call``: an importable engine call; runs on the executors.

    Returns:
        The results of the tasks, and for each group of a task that failed the reason.
    """
    if not groups:
        return [], {}
    wanted = max(1, len(groups) // _GROUPS_PER_TASK)
    hands = deal(groups, min(_TASKS_PER_CORE * cores(spark), wanted))
    logger.info("%s: %d groups in %d Spark tasks", flow, len(groups), len(hands))

    def run(part: Iterable[tuple[str, ...]]) -> Iterator[tuple[_S | None, dict[str, str]]]:
        for hand in part:
            yield run_hand(config, flow, hand, call)

    done = spread(spark, hands, run, tasks=len(hands))
    errors = {group: reason for _, failed in done for group, reason in failed.items()}
    return [result for result, _ in done if result is not None], errors


def run_hand(
    config: Config,
    flow: Flow,
    groups: tuple[str, ...],
    call: Callable[[FlowContext, Collection[str]], _S],
) -> tuple[_S | None, dict[str, str]]:
    """Run the call on one task's groups: its result, or the reason for each group."""
    try:
        with open_flow(config, flow) as context:
            return call(context, groups), {}
    except SrmError as error:
        return None, dict.fromkeys(groups, str(error))
