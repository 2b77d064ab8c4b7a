"""Checkpoints of a flow whose source was rebuilt: they name offsets of a log that is no more.

Where a group stands on the target is still true, and the new map says what that is on the source.
A later failover reads them: an offset of the old log would be taken for one of the new.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from srm.domain import internal_topics
from srm.domain.map_wanted import Wanted
from srm.domain.mm2_records import Checkpoint
from srm.domain.offset_map import Translated
from srm.domain.topics import TopicPartition
from srm.engine.ports import FlowContext
from srm.errors import IntegrityError

_logger = logging.getLogger(__name__)


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
    table = forward.target.compacted(topic)
    known = dict(_checkpoints(table.read(), originals))
    downstream = defaultdict[TopicPartition, set[int]](set)
    for each in known.values():
        place = each.topic_partition
        source = TopicPartition(originals[place.topic], place.partition)
        downstream[source].add(each.downstream_offset)
    if not known:
        return 0
    wanted = {place: Wanted.of((), offsets) for place, offsets in downstream.items()}
    maps = forward.maps.load(set(originals.values()), wanted)
    changed = {}
    for key, each in known.items():
        place = each.topic_partition
        source = TopicPartition(originals[place.topic], place.partition)
        found = maps.get(source).backward(each.downstream_offset)
        if isinstance(found, Translated) and found.offset != each.upstream_offset:
            changed[key] = replace(each, upstream_offset=found.offset).value()
    if changed:
        table.write(changed)
    return len(changed)


def _checkpoints(
    records: Mapping[bytes, bytes], originals: Mapping[str, str]
) -> list[tuple[bytes, Checkpoint]]:
    found = []
    for key, value in records.items():
        try:
            checkpoint = Checkpoint.decode(key, value)
        except IntegrityError as error:
            _logger.warning("passed over: %s", error)
            continue
        if checkpoint.topic_partition.topic in originals:
            found.append((key, checkpoint))
    return found
