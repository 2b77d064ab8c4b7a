"""Services that watch other targets: found by what they announce on the clusters themselves."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Final

from srm.config.model import Config
from srm.domain.names import internal_topics
from srm.domain.text.amount import ago
from srm.engine.control.compacted import ensure_compacted
from srm.engine.ports import Cluster
from srm.errors import IntegrityError, SrmError
from srm.service.federation.announcements import ServiceAnnouncement
from srm.service.shutdown import end_all
from srm.wiring import following_cluster, now_ms

BEAT_S: Final = 5.0
MISSED: Final = 4
"""So many announcements may be missing before a service counts as gone."""
_TIMEOUT_S: Final = 10.0
_KEPT: Final = {"cleanup.policy": "compact,delete", "retention.ms": "86400000"}
"""A service that died without a word is forgotten by the cluster after a day."""
_logger = logging.getLogger(__name__)

Opener = Callable[[str], AbstractContextManager[Cluster]]


@dataclass(frozen=True, slots=True)
class Heard:
    """An announcement, and when it last changed: freshness by one clock, our own."""

    announcement: ServiceAnnouncement
    at: float


class Board:
    """What is announced on one cluster, which is asked in a thread of its own.

    Of a target only those count that announce themselves on it: who may write to one cluster
    says nothing about others.

    Args:
        alias: the cluster.
        own: what this service announces there; None: nothing.
        instance: of this service, so that it does not find itself.
        opener: gives access to the cluster.
        replication_factor: of the topic, where it is made.
        clock: monotonic seconds.
        now: epoch milliseconds, for what is announced.
    """

    def __init__(
        self,
        alias: str,
        own: ServiceAnnouncement | None,
        instance: str,
        opener: Opener,
        replication_factor: int = -1,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], int] = now_ms,
    ) -> None:
        self.alias = alias
        self.error = ""
        self._own = own
        self._instance = instance
        self._open = opener
        self._replicas = replication_factor
        self._clock = clock
        self._now = now
        self._heard: dict[bytes, Heard] = {}
        self._is_made = False
        self._twins = 0
        self._closed = threading.Event()
        self.thread = threading.Thread(target=self._run, name=f"srm-board-{alias}", daemon=True)

    def start(self) -> None:
        """Begin to announce and to listen; called again it changes nothing."""
        if self.thread.ident is None:
            self.thread.start()

    def end(self) -> None:
        """Have the announcement taken back, if the cluster answers, and the thread end."""
        self._closed.set()

    def watchers(self) -> tuple[ServiceAnnouncement, ...]:
        """Return the services that watch this cluster, the one heard of last first."""
        begin = self._clock() - MISSED * BEAT_S
        return tuple(heard.announcement for heard in self._services() if heard.at >= begin)

    def silence(self) -> str:
        """Say of the service that was heard of last since when it is silent; empty: of none."""
        known = self._services()
        if not known:
            return ""
        age_ms = (self._clock() - known[0].at) * 1000
        return f"{known[0].announcement.url} was last heard of {ago(age_ms)}"

    def _services(self) -> list[Heard]:
        found = [h for h in self._heard.values() if self.alias in h.announcement.targets]
        return sorted(found, key=lambda heard: -heard.at)

    def beat(self, cluster: Cluster) -> None:
        """Announce this service once, and read what others announce; errors are kept."""
        try:
            if self._own is not None:
                self._announce(cluster, self._own)
            self._read(cluster)
            self.error = ""
        except Exception as error:  # noqa: BLE001 -- a thread that ended would be silent for good
            self._fail(error)

    def leave(self, cluster: Cluster) -> None:
        """Take the announcement back."""
        if self._own is not None and self._is_made:
            try:
                topic = cluster.compacted_topic(internal_topics.SERVICE_HEARTBEATS)
                topic.write({self._own.key(): None})
            except SrmError as error:
                _logger.info("%s still lists this service for a while: %s", self.alias, error)

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                self._listen()
            except Exception as error:  # noqa: BLE001 -- as in beat()
                self._fail(error)
                self._closed.wait(BEAT_S)

    def _listen(self) -> None:
        with self._open(self.alias) as cluster:
            while not self._closed.is_set():
                self.beat(cluster)
                self._closed.wait(BEAT_S)
            self.leave(cluster)

    def _fail(self, error: Exception) -> None:
        if not self.error:
            told = "services on %s are not known now: %s"
            known = isinstance(error, SrmError)
            _logger.warning(told, self.alias, error, exc_info=None if known else error)
        self.error = str(error) or type(error).__name__

    def _announce(self, cluster: Cluster, own: ServiceAnnouncement) -> None:
        topic = internal_topics.SERVICE_HEARTBEATS
        if not self._is_made:
            ensure_compacted(cluster, topic, 1, self._replicas, _KEPT)
            self._is_made = True
        cluster.compacted_topic(topic).write({own.key(): replace(own, time_ms=self._now()).value()})

    def _read(self, cluster: Cluster) -> None:
        found: dict[bytes, Heard] = {}
        for key, value in (
            cluster.compacted_topic(internal_topics.SERVICE_HEARTBEATS).read().items()
        ):
            try:
                told = ServiceAnnouncement.decode(value)
            except IntegrityError as error:
                _logger.debug("%s on %s: %s", key, self.alias, error)
                continue
            if told.instance == self._instance:
                continue
            if self._own is not None and told.url == self._own.url:
                self._meet_twin(told)
                continue
            known = self._heard.get(key)
            is_news = known is None or known.announcement != told
            found[key] = Heard(told, self._clock()) if is_news or known is None else known
        self._heard = found

    def _meet_twin(self, told: ServiceAnnouncement) -> None:
        """Tell of another process with this address, unless it is what was here before."""
        self._twins += 1
        if self._twins == MISSED:
            _logger.warning(
                "two services announce %s on %s: set service.advertised.host of each",
                told.url,
                self.alias,
            )


class Neighbours:
    """All services that are announced on the clusters of the configuration.

    Args:
        config: the configuration; each cluster of it is listened on, one that does not answer
            holds up nobody else.
        own: what this service announces, on the targets that it names; None: nothing.
        instance: of this service.
        opener: gives access to a cluster; by default the one of the configuration.
    """

    def __init__(
        self,
        config: Config,
        own: ServiceAnnouncement | None,
        instance: str,
        opener: Opener | None = None,
    ) -> None:
        def follow(alias: str) -> AbstractContextManager[Cluster]:
            return following_cluster(alias, config.cluster_clients(alias), _TIMEOUT_S)

        targets = own.targets if own is not None else ()
        self._boards = {
            alias: Board(
                alias,
                own if alias in targets else None,
                instance,
                opener or follow,
                config.service.remote.replication_factor,
            )
            for alias in config.clusters
        }

    def start(self) -> None:
        """Begin to announce and to listen; called again it changes nothing."""
        for board in self._boards.values():
            board.start()

    def close(self) -> None:
        """Take the announcements back and end."""
        end_all(self._boards.values())

    def watchers(self, target: str) -> tuple[ServiceAnnouncement, ...]:
        """Return the services that watch a target, the one heard of last first."""
        board = self._boards.get(target)
        return board.watchers() if board is not None else ()

    def watched_targets(self) -> tuple[str, ...]:
        """Return the targets that some other service watches."""
        return tuple(alias for alias, board in self._boards.items() if board.watchers())

    def error(self, target: str) -> str:
        """Return why it is not known who watches a target, if that is so."""
        board = self._boards.get(target)
        return "" if board is None else board.error or board.silence()
