"""Quotas and SCRAM users of one cluster."""

from __future__ import annotations

from typing import Final

from srm.engine.cluster_ports import QuotaEntity
from srm.kafka.admin.clients import Clients, answer_of
from srm.kafka.admin.errors import of_code
from srm.kafka.wire.brokers import Brokers
from srm.kafka.wire.messages import (
    BOOLEAN,
    CLASSIC,
    INT8,
    INT16,
    INT32,
    TEXT,
    Fixed,
    Message,
    Structure,
    array,
)
from srm.kafka.wire.rights import on_cluster

_FLOAT64: Final = Fixed("d")
# confluent-kafka has no call for quotas.
_DESCRIBE_CLIENT_QUOTAS: Final = Message(
    48,
    0,
    Structure(components=array(entity_type=TEXT, match_type=INT8, match=TEXT), strict=BOOLEAN),
    Structure(
        throttle_time_ms=INT32,
        error_code=INT16,
        error_message=TEXT,
        entries=array(
            entity=array(entity_type=TEXT, entity_name=TEXT), values=array(key=TEXT, value=_FLOAT64)
        ),
    ),
    CLASSIC,
)


def quotas(clients: Clients) -> dict[QuotaEntity, dict[str, float]]:
    """Return the client quotas by what they limit."""
    needs = on_cluster("DescribeConfigs")

    async def ask(brokers: Brokers) -> dict[QuotaEntity, dict[str, float]]:
        await brokers.look()
        answer = await brokers.query_any(_DESCRIBE_CLIENT_QUOTAS([], False))  # noqa: FBT003 - a field
        if answer["error_code"]:
            raise of_code(answer["error_code"], clients.where("reading quotas"), needs)
        return {
            tuple(sorted((part["entity_type"], part["entity_name"]) for part in entry["entity"])): {
                limit["key"]: limit["value"] for limit in entry["values"]
            }
            for entry in answer["entries"] or ()
        }

    return clients.ask("reading quotas", ask, needs)


def scram_users(clients: Clients) -> frozenset[str]:
    """Return the users with SCRAM credentials."""

    def request(timeout_s: float) -> frozenset[str]:
        found = clients.admin().describe_user_scram_credentials(request_timeout=timeout_s)
        return frozenset(answer_of(found, timeout_s))

    return clients.call("reading SCRAM users", request, on_cluster("Describe"))
