"""Restores that were broken off: until they are finished, nothing else may end the pause."""

from __future__ import annotations

from srm.domain.recovery.restore import PartitionFacts, restore_flow
from srm.engine.ports import FlowContext, TopicDescription
from srm.replication.restore.flow_state import FlowState


def unfinished(forward: FlowContext) -> tuple[str, ...]:
    """Say of which topics of a flow's source a restore was begun and not handed over.

    If the flow went on now, it would copy what is restored a second time. Where the topic on the
    source was deleted since, nothing is left of its restore.

    Raises:
        SrmError: a cluster does not answer.
    """
    flow = forward.config.flow
    own = FlowState.read(forward.source, restore_flow(flow))
    if own.restoring is None:
        return ()
    known, policy = FlowState.read(forward.target, flow), forward.config.policy
    begun = own.restoring.topics if own.restoring.is_for(known.pause) else {}
    copies, originals = forward.target.topics(), forward.source.topics()
    return tuple(
        f"the restore of topic {name} was broken off: finish it (srm restore --from {flow.target} "
        f"--to {flow.source} --topic {name}), or delete the topic on {flow.source}"
        for name, original in sorted(originals.items())
        if (copy := copies.get(policy.format_remote_topic(flow.source, name))) is not None
        and not _is_over(own, known, original, copy, is_begun=begun.get(name) == original.topic_id)
    )


def _is_over(
    own: FlowState,
    known: FlowState,
    original: TopicDescription,
    copy: TopicDescription,
    *,
    is_begun: bool,
) -> bool:
    numbers = range(copy.partitions)
    restored = {n: own.position(copy, n, original.topic_id) for n in numbers}
    if not (is_begun or any(restored.values())):
        return True
    return all(
        PartitionFacts(
            (0, 0),
            restored=restored[n],
            forward=known.position(original, n, copy.topic_id),
        ).is_handed_over
        for n in numbers
    )
