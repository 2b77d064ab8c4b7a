"""ACLs of a cluster, where brokers have an authorizer, and the rights that follow (KIP-430).

A fence of writes is one rule a topic: Write is denied to ``User:*`` from any host. A denial goes
before every rule that allows; Kafka knows no exception from it but the brokers' super users.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, admin

from srm.config.model import ClientKind
from srm.domain.names.rights import ALL_USERS, ANY_NAME, Acl, ResourceKind, write_denial
from srm.domain.text.amount import some
from srm.errors import AuthorizationError, ConfigError, UnavailableError
from srm.kafka.admin.clients import Clients, answer_of, batches
from srm.kafka.admin.topics import UNKNOWN_TOPIC_CODES
from srm.kafka.wire import requests as api
from srm.kafka.wire.brokers import Brokers
from srm.kafka.wire.errors import TOPIC, check, on_cluster
from srm.kafka.wire.messages import Request

_ANYTHING: Final = api.DESCRIBE_ACLS(
    admin.ResourceType.ANY.value,
    None,
    admin.ResourcePatternType.ANY.value,
    None,
    None,
    admin.AclOperation.ANY.value,
    admin.AclPermissionType.ANY.value,
)
_DENIALS: Final = api.DESCRIBE_ACLS(
    admin.ResourceType.TOPIC.value,
    None,
    admin.ResourcePatternType.LITERAL.value,
    ALL_USERS,
    ANY_NAME,
    admin.AclOperation.WRITE.value,
    admin.AclPermissionType.DENY.value,
)
_RESOURCES: Final[Mapping[ResourceKind, admin.ResourceType]] = {
    "topic": admin.ResourceType.TOPIC,
    "group": admin.ResourceType.GROUP,
    "transactional-id": admin.ResourceType.TRANSACTIONAL_ID,
}
_BATCH: Final = 500
"""Rules of one request: the controller compares each rule to remove with all that there are."""
_KINDS: Final = {kind.value: name for name, kind in _RESOURCES.items()}
_OPERATIONS: Final = {one.name.title().replace("_", ""): one for one in admin.AclOperation}
"""Operations as kafka-acls.sh spells them: ``DescribeConfigs``."""
_NAMES: Final = {one.value: name for name, one in _OPERATIONS.items()}


def unavailable_reason(clients: Clients) -> str:
    try:
        _on_each_broker(clients, _DENIALS)
    except ConfigError:
        return f"the brokers of {clients.alias} have no authorizer"
    except AuthorizationError:
        return _lacking(clients, "Describe")

    async def may_alter(brokers: Brokers) -> bool:
        return "Alter" in _rights_of((await brokers.look(rights=True))["cluster_operations"])

    return "" if clients.request("checking rights", may_alter) else _lacking(clients, "Alter")


def describe(clients: Clients) -> frozenset[Acl]:
    return frozenset.intersection(*_on_each_broker(clients, _ANYTHING))


def create(clients: Clients, acls: Collection[Acl], look: Request = _ANYTHING) -> None:
    """Add ACLs, and wait until ``look`` shows them in force; those that exist do not matter."""
    _change(clients, acls, look, adds=True)


def delete(clients: Clients, acls: Collection[Acl], look: Request = _ANYTHING) -> None:
    _change(clients, acls, look, adds=False)


def topic_rights(
    clients: Clients, topics: Collection[str], client: ClientKind = "admin"
) -> dict[str, frozenset[str]]:
    doing, absent = "checking rights on topics", {*UNKNOWN_TOPIC_CODES, KafkaError.TOPIC_EXCEPTION}

    async def look(brokers: Brokers) -> dict[str, frozenset[str]]:
        answers = (await brokers.look(topics, rights=True))["topics"]
        found = [one for one in answers if one["error_code"] not in absent]
        check(found, clients.label(doing), fine=[TOPIC])
        return {one["topic"]: _rights_of(one["topic_operations"]) for one in found}

    return clients.request(doing, look, client=client) if topics else {}


def _rights_of(bits: int) -> frozenset[str]:
    return frozenset(name for value, name in _NAMES.items() if bits >> value & 1)


def write_denials(clients: Clients, topics: Collection[str]) -> frozenset[str]:
    denials = frozenset.intersection(*_on_each_broker(clients, _DENIALS))
    return frozenset(topics).intersection(denial.name for denial in denials)


def deny_writes(clients: Clients, topics: Collection[str]) -> None:
    create(clients, [write_denial(topic) for topic in topics], _DENIALS)


def allow_writes(clients: Clients, topics: Collection[str]) -> None:
    delete(clients, [write_denial(topic) for topic in topics], _DENIALS)


def _change(clients: Clients, acls: Collection[Acl], look: Request, *, adds: bool) -> None:
    if not acls:
        return
    doing = f"{'adding' if adds else 'removing'} {some([*map(str, sorted(acls))], 3)}"
    make: Callable[..., admin.AclBinding] = admin.AclBinding if adds else admin.AclBindingFilter
    changed, rules = frozenset(acls), [make(*_parts(acl)) for acl in acls]

    def request(batch: list[Any], timeout_s: float) -> None:
        start = clients.admin().create_acls if adds else clients.admin().delete_acls
        for future in start(batch, request_timeout=timeout_s).values():
            answer_of(future, timeout_s)

    def in_force() -> bool:
        found = _on_each_broker(clients, look)
        return all(changed <= one if adds else changed.isdisjoint(one) for one in found)

    for batch in batches(rules, _BATCH):
        clients.call(doing, partial(request, batch), on_cluster("Alter"))
    clients.wait_until(doing, in_force)


def _on_each_broker(clients: Clients, request: Request) -> list[frozenset[Acl]]:
    """Query each broker for ACLs; skip brokers that do not answer."""
    needs = on_cluster("Describe")

    async def query_all(brokers: Brokers) -> list[frozenset[Acl]]:
        await brokers.look()
        answers = await asyncio.gather(
            *[brokers.query(node, request) for node in brokers.nodes], return_exceptions=True
        )
        found, unavailable = [], None
        for answer in answers:
            if isinstance(answer, UnavailableError):
                unavailable = answer
            elif isinstance(answer, BaseException):
                raise answer
            else:
                check([answer], clients.label("reading ACLs"), needs)
                found.append(frozenset(_decode(answer)))
        if not found:
            raise unavailable or UnavailableError(clients.label("reading ACLs: no broker"))
        return found

    return clients.request("reading ACLs", query_all, needs)


def _decode(answer: Mapping[str, Any]) -> Iterator[Acl]:
    for resource in answer["resources"]:
        kind = _KINDS.get(resource["resource_type"])
        prefixed = resource["pattern_type"] == admin.ResourcePatternType.PREFIXED.value
        if kind is None:
            continue
        for rule in resource["acls"]:
            allows = rule["permission_type"] == admin.AclPermissionType.ALLOW.value
            yield Acl(
                kind,
                resource["resource_name"],
                rule["principal"],
                _NAMES[rule["operation"]],
                "Allow" if allows else "Deny",
                rule["host"],
                "prefixed" if prefixed else "literal",
            )


def _parts(acl: Acl) -> tuple[Any, ...]:
    return (
        _RESOURCES[acl.resource],
        acl.name,
        admin.ResourcePatternType[acl.pattern.upper()],
        acl.principal,
        acl.host,
        _OPERATIONS[acl.operation],
        admin.AclPermissionType[acl.permission.upper()],
    )


def _lacking(clients: Clients, operation: str) -> str:
    return f"on {clients.alias} srm's principal lacks {operation} on the cluster (docs/security.md)"
