"""Presence of clients: followers of routes, their answer to a hold, and other writers.

A client of ``srm.client`` announces itself at its start and repeats that (:class:`Ack`), so the
plan knows the clients that the hold reaches. The brokers show other clients: as members of groups,
and as producer ids that wrote to a partition (DescribeProducers, KIP-664). A producer without
idempotence shows only by the growth of the log.

All times are the broker's: records of the routing topic carry its clock (LogAppendTime).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from srm.domain.moves.routing.routes import Ack, group_subject, topic_subject
from srm.domain.names.transactions import ActiveProducer

ANNOUNCED_MS = 90_000
"""Expiry of a client after its last announcement; clients repeat it every 30 s."""


SUPERVISOR: Final = "srm-follow-"
"""Prefix of the client ids under which ``srm follow`` announces the programs it runs."""


@dataclass(frozen=True, slots=True)
class StampedAck:
    """The last message of a client about one subject, with its time by the broker's clock."""

    ack: Ack
    stamped_ms: int


@dataclass(frozen=True)
class Presence:
    """The clients that announced themselves, as of ``now_ms`` by the broker's clock."""

    announced: tuple[StampedAck, ...] = ()
    now_ms: int = 0

    @classmethod
    def of(cls, acks: Iterable[StampedAck], now_ms: int) -> Presence:
        """Keep the last message of each client: generation first, as clusters' clocks differ."""
        newest: dict[tuple[str, str], StampedAck] = {}
        for one in sorted(acks, key=lambda a: (a.ack.generation, a.stamped_ms)):
            newest[one.ack.subject, one.ack.client] = one
        return cls(tuple(newest.values()), now_ms)

    @cached_property
    def _alive(self) -> Mapping[str, tuple[StampedAck, ...]]:
        alive: dict[str, tuple[StampedAck, ...]] = {}
        for one in self.announced:
            if self.now_ms - one.stamped_ms <= ANNOUNCED_MS:
                alive[one.ack.subject] = (*alive.get(one.ack.subject, ()), one)
        return alive

    def followers(self, subject: str) -> tuple[Ack, ...]:
        """Return the clients that follow the route of a subject and have not expired."""
        return tuple(one.ack for one in self._alive.get(subject, ()))

    def not_held(self, subject: str, generation: int) -> tuple[StampedAck, ...]:
        """Return the followers that have not acknowledged the hold of this generation."""
        return tuple(
            one
            for one in self._alive.get(subject, ())
            if one.ack.generation < generation or one.ack.state != "held"
        )


@dataclass(frozen=True)
class Writers:
    """Producer ids on the topics that move.

    ``at_hold``: last sequences at the hold, by :attr:`ActiveProducer.name`.
    ``recent_ms``: a producer that wrote within this time before the hold may write again.
    """

    now: tuple[ActiveProducer, ...] = ()
    at_hold: Mapping[str, int] = field(default_factory=dict)
    held_ms: int = 0
    recent_ms: int = 0

    def wrote_since_hold(self, topic: str) -> frozenset[int]:
        """Return the producer ids that have written to a topic since the hold, however slowly."""
        return frozenset(
            w.producer_id
            for w in self.now
            if w.partition.topic == topic and self.at_hold.get(w.name) != w.last_sequence
        )

    def recent(self, topic: str) -> frozenset[int]:
        """Return the producer ids that wrote to a topic shortly before the hold, or since."""
        return self.wrote_since_hold(topic) | {
            w.producer_id
            for w in self.now
            if w.partition.topic == topic and w.last_timestamp_ms >= self.held_ms - self.recent_ms
        }


def strangers(group: str, members: Collection[str], presence: Presence) -> tuple[str, ...]:
    """Return the members of a group, ``client id@host``, that the hold cannot reach."""
    known = [ack.client for ack in presence.followers(group_subject(group))]
    return tuple(one for one in members if not any(is_member_of(client, one) for client in known))


def is_member_of(client: str, member: str) -> bool:
    """Return whether a member, ``client id@host``, is an announced client, maybe with a suffix."""
    name = member.rpartition("@")[0]
    return name == client or (client.startswith(SUPERVISOR) and name.startswith(f"{client}-"))


def unknown_writers(topic: str, writers: Writers, presence: Presence) -> int:
    """Count recent producer ids, which have no client names, minus followers of the route."""
    return max(0, len(writers.recent(topic)) - len(presence.followers(topic_subject(topic))))


def unheld_producers(topics: Collection[str], generation: int, presence: Presence) -> Iterator[str]:
    """Yield a reason for each announced producer that has not stopped for the hold."""
    for topic in topics:
        for one in presence.not_held(topic_subject(topic), generation):
            host = f" on {one.ack.host}" if one.ack.host else ""
            left = (ANNOUNCED_MS - (presence.now_ms - one.stamped_ms)) / 1000
            yield (
                f"producer {one.ack.client}{host} of topic {topic} has not stopped yet: it is "
                f"flushing, is finishing a transaction, or is dead and expires in {left:.0f} s"
            )
