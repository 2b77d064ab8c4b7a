"""ACLs on topics, groups and transactional ids, in the words of kafka-acls.sh."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

ResourceKind = Literal["topic", "group", "transactional-id"]
PatternKind = Literal["literal", "prefixed"]
Permission = Literal["Allow", "Deny"]

ANY_NAME: Final = "*"
"""A literal resource name that matches all names, and a host that matches all hosts."""
ALL_USERS: Final = "User:*"


@dataclass(frozen=True, slots=True, order=True)
class Acl:
    """One rule: a principal from a host may, or may not, do an operation on a resource."""

    resource: ResourceKind
    name: str
    principal: str
    operation: str
    permission: Permission = "Allow"
    host: str = ANY_NAME
    pattern: PatternKind = "literal"

    def __str__(self) -> str:
        return f"{self.where}: {self.rule}"

    @property
    def where(self) -> str:
        """The resource, such as ``topic payments``, with an asterisk after a prefix."""
        return f"{self.resource} {self.name}{'*' if self.pattern == 'prefixed' else ''}"

    @property
    def rule(self) -> str:
        """The rule without its resource, such as ``Allow Read for User:app``."""
        where = "" if self.host == ANY_NAME else f" from {self.host}"
        return f"{self.permission} {self.operation} for {self.principal}{where}"

    def covers(self, resource: ResourceKind, name: str) -> bool:
        """Return whether the rule applies to a resource."""
        if self.pattern == "prefixed":
            matches = name.startswith(self.name)
        else:
            matches = self.name in {name, ANY_NAME}
        return resource == self.resource and matches


def write_denial(topic: str) -> Acl:
    """Return the rule of a fence: no user may write to a topic."""
    return Acl("topic", topic, ALL_USERS, "Write", "Deny")


def writers_of(topic: str, acls: Iterable[Acl]) -> frozenset[str]:
    """Return the principals that may write to a topic."""
    return frozenset(
        acl.principal
        for acl in acls
        if acl.permission == "Allow"
        and acl.operation in {"Write", "All"}
        and acl.covers("topic", topic)
    )
