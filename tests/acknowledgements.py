"""Acknowledgements of clients in a routing topic."""

from __future__ import annotations

from collections.abc import Mapping

from srm.domain.moves.routing import Ack, decode_ack, is_ack


def acks_of(records: Mapping[bytes, bytes]) -> tuple[Ack, ...]:
    """Decode the acknowledgements among the records of one cluster's routing topic."""
    acks = (decode_ack(key, value) for key, value in records.items() if is_ack(key))
    return tuple(sorted(acks, key=lambda ack: (ack.subject, ack.client)))
