"""Checkpoints of a flow whose source was rebuilt: they name offsets of a log that is no more.

Where a group stands on the target is still true, and the new map says what that is on the source.
A later failover reads them: an offset of the old log would be taken for one of the new.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from srm.domain.groups.mm2_records import TopicIds
from srm.domain.names import internal_topics
from srm.domain.names.topics import TopicPartition
from srm.domain.offset_map.map_wanted import Wanted
from srm.domain.offset_map.offset_map import Translated
from srm.engine.groups.checkpoints import read_checkpoints
from srm.engine.ports import FlowContext


def renew_checkpoints(forward: FlowContext, originals: Mapping[str, str]) -> int:
    """Write checkpoints of restored topics again, with offsets of the new log; return how many.

    Args:
        forward: the flow; its map must be handed over.
        originals: topics of the source by the names of their copies.

    Raises:
        SrmError: a cluster does not answer.
    """
    config = forward.config
    topic = internal_topics.checkpoints(config.flow.source, config.policy.separator)
    target, sources = forward.target, forward.source.topics()
    found = read_checkpoints(target, topic, target.topics())
    places = {
        one.checkpoint: TopicPartition(originals[place.topic], place.partition)
        for one in found
        if (place := one.checkpoint.topic_partition).topic in originals
    }
    if not places:
        return 0
    downstream = defaultdict[TopicPartition, set[int]](set)
    for each, source in places.items():
        downstream[source].add(each.downstream_offset)
    wanted = {place: Wanted.of((), offsets) for place, offsets in downstream.items()}
    maps = forward.maps.load(set(originals.values()), wanted)
    changed: dict[bytes, bytes | None] = {}
    for each, source in places.items():
        offset, ids = maps.get(source).backward(each.downstream_offset), each.topic_ids
        if isinstance(offset, Translated):
            now = ids and TopicIds(sources[source.topic].topic_id, ids.target).metadata()
            renewed = replace(each, upstream_offset=offset.offset, metadata=now or each.metadata)
            if renewed != each:
                changed[each.key()] = renewed.value()
    if changed:
        target.compacted(topic).write(changed)
    return len(changed)
