"""Rights of srm on topics, as reported by brokers (KIP-430)."""

from __future__ import annotations

from collections.abc import Collection

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation

from srm.config.model import ClientKind
from srm.kafka.admin.clients import Clients, answer_of
from srm.kafka.admin.topics import UNKNOWN_TOPIC_CODES
from srm.kafka.wire.rights import TOPIC


def operations(
    clients: Clients, topics: Collection[str], client: ClientKind
) -> dict[str, frozenset[str]]:
    """Return the operations that a kind of client may do with each topic, by name.

    Topics that do not exist, or cannot by their name, are left out; one that may not be
    described has none.

    Raises:
        SrmError: the cluster does not answer.
    """
    if not topics:
        return {}
    collection = TopicCollection(sorted(topics))

    def request(timeout_s: float) -> dict[str, frozenset[str]]:
        futures = clients.admin_as(client).describe_topics(
            collection, include_authorized_operations=True, request_timeout=timeout_s
        )
        found: dict[str, frozenset[str]] = {}
        for name, future in futures.items():
            try:
                allowed = answer_of(future, timeout_s).authorized_operations or ()
                found[name] = frozenset(map(operation_name, allowed))
            except KafkaException as error:
                code = error.args[0].code()
                if code == TOPIC:
                    found[name] = frozenset()
                elif code not in {*UNKNOWN_TOPIC_CODES, KafkaError.TOPIC_EXCEPTION}:
                    raise
        return found

    return clients.call("checking rights on topics", request)


def operation_name(operation: AclOperation) -> str:
    """Spell an operation as kafka-acls.sh does: ``DescribeConfigs``."""
    return operation.name.title().replace("_", "")
