"""The rights that calls need, named by error code: a broker says only that one is missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

TOPIC: Final = 29
GROUP: Final = 30
CLUSTER: Final = 31
TRANSACTIONAL_ID: Final = 53

Needs = Mapping[int, str]
"""A right by the error code for its want, TOPIC_AUTHORIZATION_FAILED and so on."""

NOTHING: Final[Needs] = MappingProxyType({})
_KINDS: Final = {TOPIC: "topic", GROUP: "group", TRANSACTIONAL_ID: "transactional id"}


def on_topic(operation: str, *topics: str) -> Needs:
    """Name an operation on topics."""
    return {TOPIC: _on(operation, TOPIC, topics)}


def on_group(operation: str, *groups: str) -> Needs:
    """Name an operation on consumer groups."""
    return {GROUP: _on(operation, GROUP, groups)}


def on_transactional_id(operation: str, name: str) -> Needs:
    """Name an operation on a transactional id."""
    return {TRANSACTIONAL_ID: _on(operation, TRANSACTIONAL_ID, (name,))}


def on_cluster(operation: str) -> Needs:
    """Name an operation on the cluster itself."""
    return {CLUSTER: f"{operation} on the cluster"}


def missing(code: int, needs: Needs) -> str | None:
    """Say what to grant after an error; None where the error is not about rights."""
    needed = needs.get(code)
    return None if needed is None else f"grant {needed} to srm's principal (docs/security.md)"


def _on(operation: str, kind: int, names: Iterable[str], most: int = 3) -> str:
    ordered = sorted(set(names))
    more = f" and {len(ordered) - most} more" if len(ordered) > most else ""
    listed = ", ".join(ordered[:most]) + more
    return f"{operation} on {_KINDS[kind]}{'s' if len(ordered) > 1 else ''} {listed}"
