"""Topics that hold the state of srm, and fenced writes of control records."""

from __future__ import annotations

import logging
import random
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, TypeVar

from srm.domain.names import internal_topics
from srm.domain.text.amount import Finding, problem
from srm.engine.cluster_ports import Cluster, CompactedTopic, TopicSetting, TopicSpec, tolerate
from srm.errors import AuthorizationError, BusyError, ConfigError, FencedError, SrmError

_logger = logging.getLogger(__name__)

COMPACTED_CONFIGS: Final[Mapping[str, str]] = {
    "cleanup.policy": "compact",
    # The active segment is never compacted, and every reader reads all of it.
    "segment.bytes": str(16 * 1024 * 1024),
    "segment.ms": str(10 * 60 * 1000),
    "min.cleanable.dirty.ratio": "0.1",
}
"""Configs of a new compacted topic unless the caller gives others."""

STAMPED: Final = {"message.timestamp.type": "LogAppendTime"}
"""Configs of a topic whose timestamps come from one clock, the broker's."""


def compacted_spec(
    topic: str,
    replication_factor: int,
    partitions: int = 1,
    extra_configs: Mapping[str, str] | None = None,
) -> TopicSpec:
    """Describe a compacted topic; with two replicas or more any one broker may be dead."""
    in_sync = {"min.insync.replicas": str(min(2, max(1, replication_factor - 1)))}
    configs = {**COMPACTED_CONFIGS, **(in_sync if replication_factor > 0 else {})}
    return TopicSpec(topic, partitions, replication_factor, {**configs, **(extra_configs or {})})


def ensure_compacted(
    cluster: Cluster,
    topic: str,
    partitions: int = 1,
    replication_factor: int = 1,
    extra_configs: Mapping[str, str] | None = None,
) -> None:
    """Create a compacted topic; concurrent calls are safe.

    An existing one keeps its settings except cleanup.policy, which becomes compact: retention would
    delete the state in it.
    """
    spec = compacted_spec(topic, replication_factor, partitions, extra_configs)
    cluster.create_topics([spec])
    wanted = spec.configs["cleanup.policy"]
    settings = cluster.topic_settings([topic]).get(topic, {})
    found = settings.get("cleanup.policy", TopicSetting()).value
    if found != wanted:
        _logger.warning(
            "topic %s on cluster %s had cleanup.policy=%s, now %s: it holds state of srm",
            *(topic, cluster.alias, found or "the broker's default", wanted),
        )
        cluster.alter_topic_configs({topic: {"cleanup.policy": wanted}})


_CONFIGS: Final[Mapping[str, Mapping[str, str]]] = {
    internal_topics.MOVES: STAMPED,
    # One clock, the broker's, orders the records of clients and moves.
    internal_topics.ROUTING: STAMPED,
    # A client that lives repeats its announcement, so a day is enough for those that died.
    internal_topics.CLIENTS: {
        **STAMPED,
        "cleanup.policy": "compact,delete",
        "retention.ms": str(24 * 60 * 60 * 1000),
    },
    internal_topics.LEDGER: STAMPED,
}
_PARTITIONS: Final[Mapping[str, int]] = {internal_topics.CLIENTS: 4}
"""Partitions of a new topic, else one; readers read all that a topic has."""


CONTROL_TOPICS: Final = tuple(_CONFIGS)
CLIENTS_TOPICS: Final = (internal_topics.ROUTING, internal_topics.CLIENTS)
"""Topics that clients need before the first move, on each cluster that they may work on."""


def create_control_topics(
    cluster: Cluster, replication_factor: int, wanted: Collection[str] = CONTROL_TOPICS
) -> tuple[str, ...]:
    existing = cluster.topics()
    missing = tuple(name for name in wanted if name not in existing)
    if missing:
        own = (
            compacted_spec(name, replication_factor, _PARTITIONS.get(name, 1), _CONFIGS[name])
            for name in missing
        )
        cluster.create_topics([*own])
    return missing


def repair_control_topics(cluster: Cluster) -> None:
    """Set the configs that moves rely on, on control topics that others have created."""
    for topic, found in cluster.topic_settings(_CONFIGS).items():
        known = {name: one.value for name, one in found.items()}
        wanted = _CONFIGS[topic]
        if changes := {key: value for key, value in wanted.items() if known.get(key) != value}:
            try:
                cluster.alter_topic_configs({topic: changes})
            except (AuthorizationError, ConfigError) as error:
                _logger.warning("topic %s keeps its settings: %s", topic, error)


def clock_findings(cluster: Cluster) -> Iterator[Finding]:
    """Find a cluster whose brokers do not stamp beats or announcements: no age is exact there."""
    names, [(key, wanted)] = CLIENTS_TOPICS, STAMPED.items()
    trouble = f"settings of {' and '.join(names)} on cluster {cluster.alias} are not known"
    found = tolerate(lambda: cluster.topic_settings(names), trouble, AuthorizationError) or {}
    for name in names:
        if (value := found.get(name, {}).get(key, TopicSetting(wanted)).value) != wanted:
            repair = "kafka-configs.sh --bootstrap-server HOST:PORT --alter --entity-type topics "
            yield problem(
                "clock",
                f"{name} on {cluster.alias} has {key}={value}, so ages of clients are not known",
                f"{repair}--entity-name {name} --add-config {key}={wanted}",
            )


CONTROL_ID: Final = "srm-control-records"
"""Transactional id of all control records of a cluster, for all its peers.

With one id per pair, two moves of the same clients to two targets would not fence each other.
"""

STEP_S: Final = 300.0
"""Longest time that a step waits for others that write control records."""
_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 5.0
_T = TypeVar("_T")


QUEUE_PREFIX: Final = b"queue:"
TURN_S: Final = 5.0
"""Longest turn: then the next one is served, as the process may be dead."""
_POLL_S: Final = 0.05
_LONGEST_POLL_S: Final = 0.5


class Place:
    """A place in the queue of those that open the writer of a cluster, in the order of the log.

    Without it each one that opens the writer fences the one before, and of many at once none
    finishes. The fence alone keeps changes atomic: one that does not queue does no harm.
    """

    def __init__(self, topic: CompactedTopic) -> None:
        self._topic = topic
        self._key = QUEUE_PREFIX + secrets.token_hex(8).encode()
        self._is_in = False

    def wait(self, deadline: float) -> None:
        """Wait for the turn, at most until the monotonic ``deadline``; take a place first."""
        served, since = b"", time.monotonic()
        while (now := time.monotonic()) < deadline:
            queue = [key for key in self._topic.read_stamped() if key.startswith(QUEUE_PREFIX)]
            if self._key not in queue:
                self._topic.write({self._key: b"{}"})
                self._is_in = True
                continue
            if queue[0] == self._key:
                return
            if queue[0] != served:
                served, since = queue[0], now
            elif now - since > TURN_S:
                _logger.info("the turn of %s is over", served)
                self._topic.write({served: None})
                continue
            time.sleep(min(_LONGEST_POLL_S, _POLL_S * queue.index(self._key)))

    def leave(self) -> None:
        """Let the next one have its turn; a record that is left costs it ``TURN_S``."""
        if self._is_in:
            self._is_in = False
            tolerate(lambda: self._topic.write({self._key: None}), "a turn is not ended", SrmError)


def until_not_fenced(
    what: str,
    attempt: Callable[[], _T],
    limit_s: float = STEP_S,
    queue: Callable[[], CompactedTopic] | None = None,
) -> _T:
    """Run an attempt that opens a writer, reads and writes, until it is not fenced.

    ``queue``: after a first time each attempt has its turn in the queue of this topic. BusyError:
    others were first for ``limit_s``; nothing was changed, and a retry may help.
    """
    deadline, number, place = time.monotonic() + limit_s, 0, None
    try:
        while True:
            try:
                return attempt()
            except FencedError as error:
                _logger.info("%s starts over: %s", what, error)
                if time.monotonic() > deadline:
                    waited = f"other changes on these clusters were first for {limit_s:g} s"
                    raise BusyError(f"{what}: {waited}", "retry") from error
            if queue is not None:
                place = place or Place(queue())
                place.wait(deadline)
            # A random pause: two processes must not keep fencing each other in turn.
            longest = min(_LONGEST_PAUSE_S, _PAUSE_S * 2 ** min(number, 10))
            if number or queue is None:
                threading.Event().wait(random.uniform(0, longest))  # noqa: S311 -- no secret
            number += 1
    finally:
        if place is not None:
            place.leave()
