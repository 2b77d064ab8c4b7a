"""Consumer and producer that follow a move from one cluster to another, imported when used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from srm.client.aio import FailoverAIOConsumer, FailoverAIOProducer
    from srm.client.consumer import FailoverConsumer
    from srm.client.messages import ClosedError, HeldError
    from srm.client.producer import FailoverProducer
    from srm.client.routing import RoutingWatcher
    from srm.client.serialising import FailoverDeserializingConsumer, FailoverSerializingProducer

__all__ = [
    "ClosedError",
    "FailoverAIOConsumer",
    "FailoverAIOProducer",
    "FailoverConsumer",
    "FailoverDeserializingConsumer",
    "FailoverProducer",
    "FailoverSerializingProducer",
    "HeldError",
    "RoutingWatcher",
]

_MODULES: Final = {
    "ClosedError": "messages",
    "FailoverAIOConsumer": "aio",
    "FailoverAIOProducer": "aio",
    "FailoverConsumer": "consumer",
    "FailoverDeserializingConsumer": "serialising",
    "FailoverProducer": "producer",
    "FailoverSerializingProducer": "serialising",
    "HeldError": "messages",
    "RoutingWatcher": "routing",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
