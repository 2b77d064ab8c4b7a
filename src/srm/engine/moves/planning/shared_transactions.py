"""Topics that one transaction writes, which move together or not at all.

A producer whose topics are on two clusters can no longer write them in one transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from srm.domain.moves.gate.finding import Finding, warning
from srm.domain.moves.records.request import MoveRequest
from srm.domain.text.reason import Reason
from srm.engine.ports import Cluster


def written_together(
    source: Cluster, request: MoveRequest, topics: Collection[str], replicated: Collection[str]
) -> Iterator[Finding]:
    """Check that transactions seen on the source write only topics that move.

    Args:
        source: the cluster that producers leave.
        request: the move.
        topics: the topics that move.
        replicated: the topics that could move.
    """
    seen = source.transactional_topics()
    if seen is None:
        yield warning(
            "transaction",
            f"the topics of transactions on {source.alias} are unknown: "
            f"grant Read on topic __transaction_state, or name all topics of such a producer",
        )
        return
    found = dict[str, bool]()
    for one in seen:
        moving = sorted(one & set(topics))
        staying = sorted(one - set(topics))
        if not moving or not staying:
            continue
        which = f"{', '.join(moving)} with {', '.join(staying)}"
        movable = sorted(set(staying) & set(replicated))
        if movable:
            found[
                f"transactions on {source.alias} write {which}: move them together, add "
                f"{' '.join(f'--topic {topic}' for topic in movable)}"
            ] = True
        else:
            found[
                f"transactions on {source.alias} write {which}, not replicated by {request.flow}: "
                f"on {request.target} their producer has no such topic"
            ] = False
    yield from (Finding("transaction", Reason(text), blocks) for text, blocks in found.items())
