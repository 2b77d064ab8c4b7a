"""Announcements of clients, by the records that hold them and as moves read them."""

from __future__ import annotations

from collections.abc import Mapping

from srm.domain.moves.announcements import Ack, decode_ack
from srm.engine.cluster_ports import Cluster
from srm.engine.moves.history import ClientsHistory


def acks_of(records: Mapping[bytes, bytes]) -> tuple[Ack, ...]:
    """Decode records of the topic of announcements."""
    acks = (decode_ack(key, value) for key, value in records.items())
    return tuple(sorted(acks, key=lambda ack: (ack.subject, ack.client)))


def acks_on(cluster: Cluster) -> tuple[Ack, ...]:
    """Return the announcements on a cluster, by subject and client."""
    return tuple(one.ack for one in ClientsHistory.read(cluster).acks)
