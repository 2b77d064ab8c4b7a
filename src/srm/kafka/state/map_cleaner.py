"""Deletes from the map topic what it holds of topics that are gone."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from srm.domain.flow_state.stale_positions import CopiedTopic
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow
from srm.domain.offset_map.map_index import decode_index_key, is_index_key
from srm.domain.offset_map.map_records import MAP_PARTITIONS, decode_block, decode_block_key
from srm.errors import IntegrityError, UnavailableError
from srm.kafka.state.state_log import KafkaStateLog
from srm.kafka.tables.topic_tail import KafkaTopicTail

_POLL_S: Final = 1.0
_SILENCE_S: Final = 30.0
_FLUSH_S: Final = 30.0
_AT_ONCE: Final = 10_000
_logger = logging.getLogger(__name__)


class KafkaMapCleaner:
    """Goes through the map topic once, keeps nothing of it, and writes tombstones.

    Args:
        flow: the flow.
        consumer_props: librdkafka properties of consumers of the target.
        producer_props: librdkafka properties of producers of the target.
    """

    def __init__(
        self, flow: Flow, consumer_props: Mapping[str, str], producer_props: Mapping[str, str]
    ) -> None:
        self._flow = flow
        self._topic = internal_topics.offset_map(flow.source)
        self._consumer_props = consumer_props
        self._producer_props = producer_props

    def clear(self, topics: Collection[CopiedTopic]) -> None:
        """Delete every record about the topics; again is harmless.

        Raises:
            SrmError: the target does not answer, or does not let srm write.
        """
        gone = {(topic.topic_id, topic.target_topic_id) for topic in topics}
        log = KafkaStateLog(self._flow.target, self._producer_props)
        for partition in range(MAP_PARTITIONS):
            for number, key in enumerate(self._keys(partition, gone), 1):
                log.write(self._topic, key, None, partition)
                if number % _AT_ONCE == 0:
                    log.flush(_FLUSH_S)
            log.flush(_FLUSH_S)
        names = ", ".join(sorted({topic.topic for topic in topics}))
        _logger.info(
            "%s: the offset maps of topics that are gone are deleted: %s", self._flow, names
        )

    def _keys(self, partition: int, gone: Collection[tuple[str, str]]) -> Iterator[bytes]:
        """Yield the keys of records about the topics, reading some thousand records at a time."""
        sources = {topic_id for topic_id, _ in gone}
        with KafkaTopicTail(self._consumer_props, self._topic, partition) as tail:
            heard = time.monotonic()
            while not tail.caught_up:
                for key, value in tail.poll(_POLL_S):
                    heard = time.monotonic()
                    about = value is not None and _source_of(key) in sources
                    if about and _ids_of(key, value or b"") in gone:
                        yield key
                if time.monotonic() - heard > _SILENCE_S:
                    raise UnavailableError(f"reading {self._topic}-{partition}: no answer; retry")


def _source_of(key: bytes) -> str:
    try:
        return (decode_index_key(key) if is_index_key(key) else decode_block_key(key)).topic_id
    except IntegrityError:
        return ""


def _ids_of(key: bytes, value: bytes) -> tuple[str, str]:
    try:
        found = decode_index_key(key) if is_index_key(key) else decode_block(key, value)
    except IntegrityError:
        return "", ""
    return found.topic_id, found.target_topic_id
