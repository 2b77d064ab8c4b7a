"""JSON of the commands: one notation of flows and partitions, whatever the result is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from srm.domain.names.topics import Flow, TopicPartition


def document(value: object, *, indent: int | None = None) -> str:
    """Return a result as JSON, without a line end.

    Dataclasses become objects, a flow ``"P->B"``, a partition ``{"topic": "T", "partition": 0}``,
    durations ISO 8601, mapping keys their ``str()``.
    """
    from srm.domain.text.documents import encode

    return encode(_plain(value), indent=indent).decode()


def _plain(value: Any) -> Any:
    if isinstance(value, Flow):
        return str(value)
    if isinstance(value, TopicPartition):
        return value._asdict()
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {_key(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each) for each in value]
    return value


def _key(key: object) -> object:
    return str(key) if isinstance(key, Flow | TopicPartition) else key
