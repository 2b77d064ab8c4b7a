"""Denying everybody to write to topics, and letting them again, where brokers have an authorizer.

One rule a topic: Write is denied to ``User:*`` from any host. A denial goes before every rule that
allows; Kafka knows no exception from it but the brokers' super users.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from srm.errors import AuthorizationError, ConfigError, UnavailableError
from srm.kafka.admin.clients import Clients, answer_of
from srm.kafka.admin.errors import of_code
from srm.kafka.wire.brokers import Brokers
from srm.kafka.wire.messages import CLASSIC, INT8, INT16, INT32, TEXT, Message, Structure, array
from srm.kafka.wire.rights import on_cluster

_EVERYBODY: Final = "User:*"
_ANYWHERE: Final = "*"

_RULES: Final = array(
    *(("principal", TEXT), ("host", TEXT), ("operation", INT8), ("permission_type", INT8)),
)
# Without the right or an authorizer librdkafka returns an empty list instead of an error.
DESCRIBE_ACLS: Final = Message(
    29,
    1,
    Structure(
        *(("resource_type", INT8), ("resource_name", TEXT), ("pattern_type", INT8)),
        *(("principal", TEXT), ("host", TEXT), ("operation", INT8), ("permission_type", INT8)),
    ),
    Structure(
        *(("throttle_time_ms", INT32), ("error_code", INT16), ("error_message", TEXT)),
        (
            "resources",
            array(
                *(("resource_type", INT8), ("resource_name", TEXT), ("pattern_type", INT8)),
                ("acls", _RULES),
            ),
        ),
    ),
    CLASSIC,
)
_DENIALS: Final = DESCRIBE_ACLS(
    ResourceType.TOPIC.value,
    None,
    ResourcePatternType.LITERAL.value,
    _EVERYBODY,
    _ANYWHERE,
    AclOperation.WRITE.value,
    AclPermissionType.DENY.value,
)


def unavailable_reason(clients: Clients) -> str:
    """Say why srm cannot deny writes on this cluster; empty where it can."""
    try:
        _denied_topics(clients)
    except ConfigError:
        return f"the brokers of {clients.alias} have no authorizer"
    except AuthorizationError:
        return _lacking(clients, "Describe")

    def request(timeout_s: float) -> bool:
        asked = clients.admin().describe_cluster(
            include_authorized_operations=True, request_timeout=timeout_s
        )
        described = answer_of(asked, timeout_s)
        return AclOperation.ALTER in (described.authorized_operations or ())

    return "" if clients.call("checking rights", request) else _lacking(clients, "Alter")


def write_denials(clients: Clients, topics: Collection[str]) -> frozenset[str]:
    """Return those of the topics to which everybody is denied to write, on every broker."""
    return frozenset(topics).intersection(*_denied_topics(clients))


def deny_writes(clients: Clients, topics: Collection[str]) -> None:
    """Deny everybody to write to topics, and wait until that is in force."""
    wanted = frozenset(topics)
    _change(
        clients,
        ("denying", "denied", topics),
        lambda timeout_s: clients.admin().create_acls(
            [AclBinding(*_no_writing(topic)) for topic in topics], request_timeout=timeout_s
        ),
        lambda: write_denials(clients, topics) == wanted,
    )


def allow_writes(clients: Clients, topics: Collection[str]) -> None:
    """Remove what :func:`deny_writes` has set, and wait until that is in force."""
    _change(
        clients,
        ("allowing", "allowed", topics),
        lambda timeout_s: clients.admin().delete_acls(
            [AclBindingFilter(*_no_writing(topic)) for topic in topics], request_timeout=timeout_s
        ),
        lambda: frozenset(topics).isdisjoint(*_denied_topics(clients)),
    )


def _change(
    clients: Clients,
    words: tuple[str, str, Collection[str]],
    start: Callable[[float], Mapping[Any, Future[Any]]],
    in_force: Callable[[], bool],
) -> None:
    doing, done, topics = words
    if not topics:
        return

    def request(timeout_s: float) -> None:
        for changed in start(timeout_s).values():
            answer_of(changed, timeout_s)

    named = f"writes to {', '.join(topics)}"
    clients.call(f"{doing} {named}", request, on_cluster("Alter"))
    clients.wait_until(f"{done} {named}", in_force)


def _denied_topics(clients: Clients) -> list[frozenset[str]]:
    """Query each broker for topics that deny writes; skip brokers that do not answer."""
    needs = on_cluster("Describe")

    async def ask(brokers: Brokers) -> list[frozenset[str]]:
        await brokers.look()
        answers = await asyncio.gather(
            *[brokers.ask(node, _DENIALS) for node in brokers.nodes], return_exceptions=True
        )
        found, away = [], None
        for answer in answers:
            if isinstance(answer, UnavailableError):
                away = answer
            elif isinstance(answer, BaseException):
                raise answer
            elif answer["error_code"]:
                raise of_code(answer["error_code"], clients.where("reading ACLs"), needs)
            else:
                found.append(frozenset(one["resource_name"] for one in answer["resources"]))
        if not found:
            raise away or UnavailableError(clients.where("reading ACLs: no broker"))
        return found

    return clients.ask("reading ACLs", ask, needs)


def _no_writing(
    topic: str,
) -> tuple[ResourceType, str, ResourcePatternType, str, str, AclOperation, AclPermissionType]:
    """Return what a rule of the fence and a filter that finds it are both made of."""
    return (
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        _EVERYBODY,
        _ANYWHERE,
        AclOperation.WRITE,
        AclPermissionType.DENY,
    )


def _lacking(clients: Clients, operation: str) -> str:
    return f"on {clients.alias} srm's principal lacks {operation} on the cluster (docs/security.md)"
