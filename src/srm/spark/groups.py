"""Consumer groups spread over Spark tasks: for fleets whose groups take one process too long."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import TypeVar

from pyspark.sql import SparkSession

from srm.config.model import Config
from srm.domain.topics import Flow
from srm.engine.checkpoints import groups_with_offsets, selection_of
from srm.engine.ports import FlowContext
from srm.errors import SrmError

logger = logging.getLogger(__name__)

FlowOpener = Callable[[Config, Flow], AbstractContextManager[FlowContext]]
"""``srm.wiring.open_flow``; handed in, because the wiring knows Spark and not the other way."""

_S = TypeVar("_S")
_TASKS_PER_CORE = 2
_GROUPS_PER_TASK = 20


def selected_groups(context: FlowContext) -> tuple[str, ...]:
    """Return the source's groups that the flow's lists select, in order."""
    selection = selection_of(context.config)
    return tuple(g for g in groups_with_offsets(context.source) if selection.groups.matches(g))


def deal(groups: Collection[str], hands: int) -> list[tuple[str, ...]]:
    """Deal groups out like cards, so that neighbours by name (often alike in size) are spread."""
    ordered = sorted(groups)
    return [tuple(ordered[hand::hands]) for hand in range(min(hands, len(ordered)))]


def over_groups(
    spark: SparkSession,
    config: Config,
    flow: Flow,
    open_flow: FlowOpener,
    groups: Collection[str],
    call: Callable[[FlowContext, Collection[str]], _S],
) -> tuple[list[_S], dict[str, str]]:
    """Run an engine call on the groups in Spark tasks, each with clients of its own.

    Args:
        spark: the session.
        config: the whole configuration, as the tasks need it to open the flow.
        flow: the flow.
        open_flow: ``srm.wiring.open_flow``.
        groups: the groups to spread.
        call: an importable engine call; runs on the executors.

    Returns:
        The results of the tasks, and for each group of a task that failed the reason.
    """
    if not groups:
        return [], {}
    scheduler = spark.sparkContext
    wanted = max(1, len(groups) // _GROUPS_PER_TASK)
    hands = deal(groups, min(_TASKS_PER_CORE * scheduler.defaultParallelism, wanted))
    logger.info("%s: %d groups in %d Spark tasks", flow, len(groups), len(hands))

    def run(part: Iterable[tuple[str, ...]]) -> Iterator[tuple[_S | None, dict[str, str]]]:
        for hand in part:
            yield _run_hand(config, flow, open_flow, hand, call)

    done = scheduler.parallelize(hands, len(hands)).mapPartitions(run).collect()
    errors = {group: reason for _, failed in done for group, reason in failed.items()}
    return [result for result, _ in done if result is not None], errors


def _run_hand(
    config: Config,
    flow: Flow,
    open_flow: FlowOpener,
    groups: tuple[str, ...],
    call: Callable[[FlowContext, Collection[str]], _S],
) -> tuple[_S | None, dict[str, str]]:
    try:
        with open_flow(config, flow) as context:
            return call(context, groups), {}
    except SrmError as error:
        return None, dict.fromkeys(groups, str(error))
