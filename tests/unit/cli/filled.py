"""Values of any dataclass, with names in them that are longer than a terminal is wide."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from srm.domain.names.topics import Flow, TopicPartition

TAIL = ".of-a-team.with-long.names" * 4


def long(name: str) -> str:
    """Return the text that a field of that name gets."""
    return f"{name}{TAIL}"


def filled(of: Any, name: str = "it", **given: Any) -> Any:
    """Make a value of a type: each text says which field it is in, collections have one item.

    Args:
        of: the type, a dataclass at the top.
        name: the field that it is for.
        given: fields of the dataclass that matter for what is shown.
    """
    known = {
        str: lambda: long(name),
        int: lambda: 1_700_000_000_000 if name.endswith("_ms") else 1,
        float: lambda: 1.5,
        bool: lambda: True,
        bytes: lambda: b"",
        timedelta: lambda: timedelta(seconds=1),
        Flow: lambda: Flow("P", "B"),
        TopicPartition: lambda: TopicPartition(long("topic"), 0),
        types.NoneType: lambda: None,
    }
    if of in known:
        return known[of]()
    if dataclasses.is_dataclass(of):
        hints = typing.get_type_hints(of)
        fields = {one.name: hints[one.name] for one in dataclasses.fields(of) if one.init}
        return of(
            **{one: filled(hint, one) for one, hint in fields.items() if one not in given}, **given
        )
    return _generic(of, name)


def _generic(of: Any, name: str) -> Any:
    origin, arguments = typing.get_origin(of), typing.get_args(of)
    if origin is typing.Literal:
        return arguments[0]
    if origin in {typing.Annotated, typing.Union, types.UnionType}:
        return filled(arguments[0], name)
    items = [filled(one, name) for one in arguments if one is not ...]
    if origin in {dict, Mapping}:
        return {items[0]: items[1]}
    if origin in {tuple, list, Sequence, frozenset}:
        return list(items) if origin is Sequence else origin(items)
    raise TypeError(f"no value for {of} ({name})")
