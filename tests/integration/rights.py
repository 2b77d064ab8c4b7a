"""The rights that docs/security.md says srm needs, and users who have them."""

from __future__ import annotations

import itertools
import re
import shlex
import uuid
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from tests.integration.securing import SecuredBroker, may_come_in
from tests.waiting import DEADLINE_S, eventually

PAGE: Final = Path(__file__).parents[2] / "docs" / "security.md"
_KINDS: Final = {
    "--topic": ResourceType.TOPIC,
    "--group": ResourceType.GROUP,
    "--transactional-id": ResourceType.TRANSACTIONAL_ID,
    "--cluster": ResourceType.BROKER,
}


@dataclass(frozen=True)
class Right:
    """One operation on one resource of one cluster."""

    cluster: str
    operation: str
    option: str
    name: str = "kafka-cluster"
    prefixed: bool = False

    def __str__(self) -> str:
        name = f"{self.name}*" if self.prefixed else self.name
        return f"{self.operation} {self.option.strip('-')} {name} on {self.cluster}"

    def binding(self, user: str) -> AclBinding:
        pattern = ResourcePatternType.PREFIXED if self.prefixed else ResourcePatternType.LITERAL
        operation = re.sub(r"(?<!^)([A-Z])", r"_\1", self.operation).upper()
        return AclBinding(
            _KINDS[self.option],
            self.name,
            pattern,
            f"User:{user}",
            "*",
            AclOperation[operation],
            AclPermissionType.ALLOW,
        )


def documented(*, without: str = "", commands: str = "on") -> tuple[Right, ...]:
    """Return the rights of the page's commands, one for each operation, perhaps without one.

    ``commands`` says whose: those that start with ``$on_`` are srm's, with ``$app_`` a client's.
    """
    rights = itertools.chain.from_iterable(map(_command, _lines(f"${commands}_")))
    return tuple(right for right in rights if str(right) != without)


def _lines(start: str) -> Iterator[str]:
    return (line for line in PAGE.read_text().splitlines() if line.startswith(start))


def _command(line: str) -> Iterator[Right]:
    words = shlex.split(line)
    options = list(itertools.pairwise(words))
    prefixed = ("--resource-pattern-type", "prefixed") in options
    [option] = [word for word in words if word in _KINDS]
    name = "kafka-cluster" if option == "--cluster" else words[words.index(option) + 1]
    for before, operation in options:
        if before == "--operation":
            yield Right(words[0].partition("_")[2], operation, option, name, prefixed)


def user_with(secured: SecuredBroker, rights: Collection[Right]) -> dict[str, str]:
    """Make a user with these rights and no others; return how clients come in as it."""
    admin = AdminClient({"bootstrap.servers": secured.broker.bootstrap})
    name = f"user{uuid.uuid4().hex[:8]}"
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    upsertion = UserScramCredentialUpsertion(name, credential, b"secret")
    for changed in admin.alter_user_scram_credentials([upsertion]).values():
        changed.result()
    if rights:
        grant(admin, name, rights)
    properties = {
        **secured.at("SASL"),
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": name,
        "sasl.password": "secret",
    }
    eventually(lambda: may_come_in(properties), f"{name} may come in")
    return properties


def grant(admin: AdminClient, user: str, rights: Collection[Right]) -> None:
    """Give a user rights; the broker applies what the controller has accepted in its own time."""
    for created in admin.create_acls([right.binding(user) for right in rights]).values():
        created.result(DEADLINE_S)
    of_user = AclBindingFilter(
        ResourceType.ANY,
        None,
        ResourcePatternType.ANY,
        f"User:{user}",
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    eventually(
        lambda: len(admin.describe_acls(of_user).result(DEADLINE_S)) >= len(set(rights)),
        f"rights of {user}",
    )
