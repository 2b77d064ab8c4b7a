"""Classes that a properties file names: policies and filters, ours and those of users."""

from __future__ import annotations

import importlib
from typing import Any, Final

from srm.domain.names.policy import (
    DefaultReplicationPolicy,
    IdentityReplicationPolicy,
    NameFilter,
    ReplicationPolicy,
)
from srm.errors import ConfigError

_OF_JAVA: Final = ("org.apache.kafka.connect.mirror.", "com.cloudera.")
"""Packages of MirrorMaker 2 and of Streams Replication Manager."""


def policy_of(name: str, source_alias: str, separator: str) -> ReplicationPolicy:
    """Return a policy by ``module:Class``, or as in MirrorMaker 2 by Java name or class alone."""
    known = _plain_name(name)
    if known == "DefaultReplicationPolicy":
        return DefaultReplicationPolicy(separator)
    if known == "IdentityReplicationPolicy":
        return IdentityReplicationPolicy(separator, source_alias)
    own = _load(name, ReplicationPolicy)
    try:
        return own(source_alias, separator)  # type: ignore[no-any-return]
    except Exception as error:
        raise ConfigError(f"{name}({source_alias!r}, {separator!r}) failed: {error!r}") from error


def filter_of(name: str, default: str) -> type[NameFilter]:
    """Return a class of filters; ``default`` is the Java name of MirrorMaker 2's."""
    if _plain_name(name) == default.rpartition(".")[2]:
        return NameFilter
    return _load(name, NameFilter)  # type: ignore[no-any-return]


def _plain_name(name: str) -> str:
    package, _, known = name.rpartition(".")
    return known if not package or name.startswith(_OF_JAVA) else ""


def _load(name: str, of: type) -> Any:
    module, colon, attribute = name.partition(":")
    if not colon:
        raise ConfigError(
            f"{name} is a Java class that cannot be used here; write it in Python and name it "
            f"module:Class (docs/configuration.md), or remove the line"
        )
    try:
        found = getattr(importlib.import_module(module), attribute)
    except Exception as error:
        raise ConfigError(
            f"{name} cannot be imported: {error!r}; put its module on PYTHONPATH, on the machines "
            "of Spark, too"
        ) from error
    if not (isinstance(found, type) and issubclass(found, of)):
        raise ConfigError(f"{name} is not a class derived from {of.__module__}.{of.__qualname__}")
    return found
