"""Facts about a cluster that few calls need: id, release, clock, broker settings, quotas, users."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import wait
from dataclasses import dataclass
from typing import Final

from confluent_kafka.admin import ConfigEntry, ConfigResource

from srm.clock import now_ms
from srm.domain.text.amount import amount
from srm.engine.cluster_ports import QuotaEntity
from srm.errors import AuthorizationError, UnavailableError
from srm.kafka.admin.clients import Clients
from srm.kafka.wire import requests as api
from srm.kafka.wire.brokers import Brokers
from srm.kafka.wire.errors import check, on_cluster
from srm.kafka.wire.messages import Request

_SETTINGS_S: Final = 5.0  # a claim waits for it
_FETCH: Final = 1
_logger = logging.getLogger(__name__)
_RELEASES: Final = ((18, "4.1"), (17, "3.9"), (16, "3.7"), (14, "3.5"), (13, "3.1"), (12, "2.7"))
"""The oldest release that serves a version of Fetch."""


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """Release and clock of a cluster.

    ``release``: the oldest that a broker may have, such as ``3.9``; empty if unknown. ``ahead_ms``:
    controller's clock minus this host's; None without KRaft, or Describe on the cluster.
    ``within_ms``: maximum error of ``ahead_ms``, half the time of the request.
    """

    release: str
    brokers: int
    ahead_ms: int | None
    within_ms: int = 0

    @property
    def text(self) -> str:
        release = f"Kafka {self.release} or newer" if self.release else "release unknown"
        return f"{amount(self.brokers, 'broker')}, {release}"


def cluster_id(clients: Clients) -> str:
    async def request(brokers: Brokers) -> str:
        return str((await brokers.look())["cluster_id"])

    return clients.request("describing the cluster", request)


def read_facts(clients: Clients) -> ClusterFacts:
    return clients.request("describing the cluster", _read, on_cluster("Describe"))


async def _read(brokers: Brokers) -> ClusterFacts:
    await brokers.look()
    newest = [await brokers.newest(node, _FETCH) for node in brokers.nodes]
    least = min(newest, default=-1)
    release = next((name for version, name in _RELEASES if version <= least), "")
    node = brokers.nodes[0]
    if not await brokers.serves(node, api.DESCRIBE_QUORUM):
        return ClusterFacts(release, len(newest), None)
    began_ms = now_ms()
    answer = await brokers.query(node, api.DESCRIBE_QUORUM([("__cluster_metadata", [(0,)])]))
    ended_ms = now_ms()
    try:
        check([answer], "describing the quorum", on_cluster("Describe"))
    except AuthorizationError:
        return ClusterFacts(release, len(newest), None)
    quorum = answer["topics"][0]["partitions"][0]
    caught_up = {one["replica_id"]: one["last_caught_up_ms"] for one in quorum["voters"]}
    at_ms = caught_up.get(quorum["leader_id"], -1)
    if at_ms < 0:
        return ClusterFacts(release, len(newest), None)
    within_ms = (ended_ms - began_ms + 1) // 2
    return ClusterFacts(release, len(newest), at_ms - (began_ms + ended_ms) // 2, within_ms)


def quotas(clients: Clients) -> dict[QuotaEntity, dict[str, float]]:
    request = api.DESCRIBE_CLIENT_QUOTAS([], False)  # noqa: FBT003 - a field
    return {
        tuple(sorted((part["entity_type"], part["entity_name"]) for part in entry["entity"])): {
            limit["key"]: limit["value"] for limit in entry["values"]
        }
        for entry in _ask(clients, "quotas", request, "DescribeConfigs")["entries"] or ()
    }


def scram_users(clients: Clients) -> frozenset[str]:
    answer = _ask(clients, "SCRAM users", api.DESCRIBE_SCRAM_USERS([]), "Describe")
    return frozenset(user["user"] for user in answer["users"])


def _ask(clients: Clients, what: str, request: Request, right: str) -> api.Answer:
    needs = on_cluster(right)

    async def ask(brokers: Brokers) -> api.Answer:
        await brokers.look()
        answer = await brokers.query_any(request)
        check([answer], clients.label(f"reading {what}"), needs)
        return answer

    return clients.request(f"reading {what}", ask, needs)


def broker_configs(clients: Clients) -> dict[str, str]:
    """Return the configs of the brokers; empty when srm has no right to see them.

    Where brokers differ in a number, the smallest counts. A silent broker is skipped while others
    answer: it may be frozen, and the next query follows soon.
    """

    def read(limit_s: float) -> dict[str, str]:
        admin, answers = clients.admin(), []
        nodes = admin.list_topics(timeout=limit_s).brokers
        if not nodes:
            raise UnavailableError("reading broker settings: the cluster names no broker yet")
        for node in nodes:  # librdkafka takes one broker per call: each answers for itself
            resource = ConfigResource(ConfigResource.Type.BROKER, str(node))
            answers += admin.describe_configs([resource], request_timeout=_SETTINGS_S).values()
        wait(answers)
        heard = [answer.result() for answer in answers if answer.exception() is None]
        return _smallest(heard or [answer.result() for answer in answers])

    try:
        return clients.call("reading broker settings", read, on_cluster("DescribeConfigs"))
    except AuthorizationError as error:
        _logger.warning("assuming Kafka's defaults: %s", error)
        return {}


def _smallest(brokers: Sequence[Mapping[str, ConfigEntry]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for entries in brokers:
        for name, entry in entries.items():
            value = entry.value
            if not value:
                continue
            known = found.get(name, value)
            both_numbers = known.isdecimal() and value.isdecimal()
            found[name] = min(known, value, key=int) if both_numbers else known
    return found
