"""Clusters that Airflow opens: one by its connection, and those that waiting moves share.

The form of the connection type has a test. Airflow's shared streams serve event triggers alone, not
those of deferred tasks; hence the clients that the moves of a triggerer share.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

from airflow.sdk import BaseHook

from srm.config.loader import build_config, understand
from srm.config.model import ClusterClients, Config
from srm.config.properties import CONNECTION_KEY, Property, resolve_references
from srm.engine.cluster_ports import Cluster
from srm.errors import SrmError
from srm.kafka.admin.clients import DEFAULT_TIMEOUT_S
from srm.kafka.cluster import KafkaCluster
from srm_airflow.connections import read_connection

TEST_S: Final = 15.0
_ALIAS: Final = "connection"


class KafkaClusterHook(BaseHook):
    """A cluster as a connection describes it; ``A.airflow.connection`` of a properties file.

    The extra holds librdkafka's properties by their names, as in a connection of type ``kafka``.
    """

    conn_name_attr = "conn_id"
    conn_type = "srm_kafka"
    default_conn_name = "srm_kafka_default"
    hook_name = "Kafka cluster of srm"

    def __init__(self, conn_id: str = default_conn_name) -> None:
        super().__init__()
        self.conn_id = conn_id

    def get_conn(self) -> KafkaCluster:
        """Return the cluster, which connects on first use; the caller closes it."""
        lines = (Property("clusters", _ALIAS), Property(f"{_ALIAS}.{CONNECTION_KEY}", self.conn_id))
        where = f"connection {self.conn_id}"
        config = build_config(
            understand(resolve_references(lines, where, connections=read_connection), where)
        )
        return KafkaCluster(_ALIAS, config.cluster_clients(_ALIAS), TEST_S)

    def test_connection(self) -> tuple[bool, str]:
        """Log in to the cluster, as the button *Test* of the form; on a worker with Airflow 3.3."""
        try:
            with self.get_conn() as cluster:
                found = cluster.facts()
        except SrmError as error:
            return False, str(error)
        return True, found.text


_Settings = tuple[str, ClusterClients, float]
"""Alias, clients and timeout in seconds."""


@dataclass(eq=False, slots=True)
class _Shared:
    """A cluster with the number of its users."""

    settings: _Settings
    cluster: KafkaCluster
    users: int = 0


class SharedClusters:
    """Gives all users of a cluster one set of clients, and one consumer that follows our topics.

    Users with other addresses, logins or timeouts get others. The last user closes a cluster.
    Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: list[_Shared] = []

    @contextmanager
    def open(
        self, config: Config, aliases: Iterable[str], timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> Iterator[Mapping[str, Cluster]]:
        """Open clusters as :func:`srm.wiring.open_clusters`, in common with other users."""
        with ExitStack() as stack:
            clients = {alias: config.cluster_clients(alias) for alias in aliases}
            yield {
                alias: stack.enter_context(self._used((alias, of, timeout_s)))
                for alias, of in clients.items()
            }

    @contextmanager
    def _used(self, settings: _Settings) -> Iterator[KafkaCluster]:
        with self._lock:
            shared = next((one for one in self._open if one.settings == settings), None)
            if shared is None:
                shared = _Shared(settings, KafkaCluster(*settings, follow=True, fresh=True))
                self._open.append(shared)
            shared.users += 1
        try:
            yield shared.cluster
        finally:
            with self._lock:
                shared.users -= 1
                is_last = not shared.users
                if is_last:
                    self._open.remove(shared)
            if is_last:
                shared.cluster.close()


CLUSTERS: Final = SharedClusters()
"""Of this process."""
