"""Clusters that the waiting moves of a triggerer share.

Airflow's shared streams serve event triggers alone, not those of deferred tasks.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Final

from srm.config.model import ClusterClients, Config
from srm.engine.cluster_ports import Cluster
from srm.kafka.admin.clients import DEFAULT_TIMEOUT_S
from srm.kafka.cluster import KafkaCluster
from srm.wiring import following_cluster


class SharedClusters:
    """Gives all users of a cluster one set of clients, and one consumer that follows our topics.

    Users with other addresses, logins or timeouts get others. The last user closes a cluster.
    Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: list[tuple[tuple[ClusterClients, float], KafkaCluster]] = []
        self._users: dict[int, int] = {}

    @contextmanager
    def open(
        self, config: Config, aliases: Iterable[str], timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> Iterator[Mapping[str, Cluster]]:
        """Open clusters as :func:`srm.wiring.open_clusters`, in common with other users.

        Raises:
            ConfigError: the configuration does not list an alias.
        """
        with ExitStack() as stack:
            clients = {alias: config.cluster_clients(alias) for alias in aliases}
            yield {
                alias: stack.enter_context(self._used(alias, of, timeout_s))
                for alias, of in clients.items()
            }

    @contextmanager
    def _used(
        self, alias: str, clients: ClusterClients, timeout_s: float
    ) -> Iterator[KafkaCluster]:
        with self._lock:
            entry = next(
                (
                    one
                    for one in self._open
                    if (one[1].alias, *one[0]) == (alias, clients, timeout_s)
                ),
                None,
            )
            if entry is None:
                cluster = following_cluster(alias, clients, timeout_s, fresh=True)
                entry = (clients, timeout_s), cluster
                self._open.append(entry)
            cluster = entry[1]
            self._users[id(cluster)] = self._users.get(id(cluster), 0) + 1
        try:
            yield cluster
        finally:
            with self._lock:
                self._users[id(cluster)] -= 1
                is_last = not self._users[id(cluster)]
                if is_last:
                    self._open.remove(entry)
                    del self._users[id(cluster)]
            if is_last:
                cluster.close()


CLUSTERS: Final = SharedClusters()
"""Of this process."""
