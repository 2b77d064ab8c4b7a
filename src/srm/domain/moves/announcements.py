"""Announcements of clients: where each works, and what it has done about the route it follows.

A client writes them to ``__srm-clients`` of every cluster and reads none; moves and views read
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from srm.domain.text.documents import Document, decode
from srm.errors import IntegrityError

AckState = Literal["held", "resumed", "processed"]
AckMoment = Literal[AckState, "written"]
ClientKind = Literal["consumer", "producer"]


@dataclass(frozen=True, slots=True)
class Ack(Document):
    """Acknowledgement of a route's generation by one client, and its heartbeat.

    A client writes it at its start, even without a route (generation 0), after each step, and every
    half minute; a tombstone when closed. A client with an older record has died.

    ``state``: *held*: it has flushed or committed, has no open transaction, and has left.
    *resumed*: it works on ``cluster``. *processed*: a consumer has since processed a record, or the
    cluster has acknowledged one of a producer.
    ``time_ms``: time of ``state`` by the client's clock; ``positions``: offsets it started at.
    ``uncommitted``: records by ``topic-partition`` that it processed before and could not commit.
    ``ages_ms``: age of each state when this was written, by the client's monotonic clock: the
    record's timestamp minus the age is the broker's time of that state. *written*: of a held
    producer's last record before; absent if not reported.
    ``home``: cluster on which it works without a route; empty if not reported.
    ``unwritten``: records that wait at a producer which cannot write them, by the reason.
    ``instance``: unique to each start of a client; empty if no two clients have its ``client``.
    ``members``: the broker's id of its last membership in the group, by cluster.
    """

    KIND = "announcement"
    subject: str
    client: str
    generation: int
    state: AckState
    cluster: str
    time_ms: int
    positions: Mapping[str, int] = field(default_factory=dict)
    host: str = ""
    uncommitted: Mapping[str, int] = field(default_factory=dict)
    ages_ms: Mapping[AckMoment, int] = field(default_factory=dict)
    home: str = ""
    unwritten: Mapping[str, int] = field(default_factory=dict)
    instance: str = ""
    members: Mapping[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> ClientKind:
        """Return what the client is: consumers follow routes of groups, producers of topics."""
        return "consumer" if self.subject.startswith("group:") else "producer"

    @property
    def identity(self) -> str:
        """Identify one start of one client: replicas of a service may share a client id."""
        return self.instance or self.client

    def key(self) -> bytes:
        """Encode the record key: one record per subject and instance."""
        return f"{self.subject}:{self.identity}".encode()


@dataclass(frozen=True, slots=True)
class StampedAck:
    """An acknowledgement with its record's timestamp: the broker's, or else the client's time."""

    ack: Ack
    stamped_ms: int
    by_broker: bool = True

    def at_ms(self, state: AckMoment) -> int | None:
        """Return the broker's time of a client's state; None if not reported or not stamped."""
        ages_ms = {self.ack.state: 0, **self.ack.ages_ms}
        return self.stamped_ms - ages_ms[state] if self.by_broker and state in ages_ms else None

    def may_have_written(self, since_ms: int) -> bool:
        """Return False for a held producer whose last record is older, by the broker's clock."""
        written_ms = self.at_ms("written") if self.ack.state == "held" else None
        return written_ms is None or written_ms >= since_ms


def decode_ack(key: bytes, value: bytes) -> Ack:
    ack = decode(Ack, f"announcement {key.decode(errors='replace')}", value)
    if ack.key() != key:
        raise IntegrityError(f"announcement {key!r} names another client")
    return ack
