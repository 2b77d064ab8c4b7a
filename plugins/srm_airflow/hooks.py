"""The connection type of a cluster: a form for librdkafka's properties, with a test."""

from __future__ import annotations

from typing import Final

from airflow.sdk import BaseHook

from srm.config.loader import build_config, understand
from srm.config.properties import Property
from srm.config.providers import CONNECTION_KEY, resolve_references
from srm.domain.text.amount import amount
from srm.errors import SrmError
from srm.kafka.cluster import KafkaCluster
from srm.wiring import kafka_cluster
from srm_airflow.connections import read_connection

TEST_S: Final = 15.0
_ALIAS: Final = "connection"


class KafkaClusterHook(BaseHook):
    """A cluster as a connection describes it; ``A.airflow.connection`` of a properties file.

    The extra holds librdkafka's properties by their names, as in a connection of type ``kafka``.

    Args:
        conn_id: the connection.
    """

    conn_name_attr = "conn_id"
    conn_type = "srm_kafka"
    default_conn_name = "srm_kafka_default"
    hook_name = "Kafka cluster of srm"

    def __init__(self, conn_id: str = default_conn_name) -> None:
        super().__init__()
        self.conn_id = conn_id

    def get_conn(self) -> KafkaCluster:
        """Return the cluster, which connects on first use; the caller closes it.

        Raises:
            ConfigError: a property is misspelt or missing.
        """
        lines = (Property("clusters", _ALIAS), Property(f"{_ALIAS}.{CONNECTION_KEY}", self.conn_id))
        where = f"connection {self.conn_id}"
        config = build_config(
            understand(resolve_references(lines, where, connections=read_connection), where)
        )
        return kafka_cluster(_ALIAS, config.cluster_clients(_ALIAS), TEST_S)

    def test_connection(self) -> tuple[bool, str]:
        """Log in to the cluster, as the button *Test* of the form; on a worker with Airflow 3.3."""
        try:
            with self.get_conn() as cluster:
                found = cluster.facts()
        except SrmError as error:
            return False, str(error)
        release = f"Kafka {found.release} or newer" if found.release else "release unknown"
        return True, f"{amount(found.brokers, 'broker')}, {release}"
