"""Places of clients by home: what they announce, else where the routes lead them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from srm.domain.moves.gate import Presence
from srm.domain.moves.routing import KnownRoutes, Route, home_subject, is_home


@dataclass(frozen=True)
class Whereabouts:
    """The places of the clients of subjects, by the cluster on which they are at home.

    Living clients announce theirs. That counts over the route that leads *their own* home, if they
    follow a later one: it may be on a cluster that was not read. Else that route decides, by the
    same rules as in a client.
    """

    tables: Sequence[Mapping[str, Route]]
    present: Presence = field(default_factory=Presence)
    _known: dict[str, KnownRoutes] = field(default_factory=dict)

    def of(self, subject: str, home: str) -> tuple[Route, ...]:
        """Return the route that clients of a home follow, or all while they differ."""
        led = self._routes(home).of(subject)
        later = {
            (ack.generation, ack.cluster)
            for ack in self.present.followers(subject)
            if ack.home == home and ack.generation > led.generation
        }
        said = (Route(*one, "go", "unknown", homes=(home,)) for one in sorted(later))
        return tuple(said) or (led,)

    def clusters(self, subject: str, home: str) -> frozenset[str]:
        return frozenset(one.cluster for one in self.of(subject, home))

    def homes_on(self, subject: str, cluster: str) -> tuple[str, ...]:
        """Return the homes of which clients of a subject work on a cluster, in order."""
        routes = (one for table in self.tables if subject in table for one in table[subject].each)
        homes = {cluster, *self._homes, *(home for one in routes for home in one.homes)}
        homes.update(one.home for one in self.present.followers(subject) if one.home)
        return tuple(home for home in sorted(homes) if cluster in self.clusters(subject, home))

    def cluster_of(self, subject: str, of: str) -> str:
        """Return where the clients of a cluster were led: itself if others have come there.

        Empty if only those at home there work on it, or if they work on several.
        """
        homes = {*self.homes_on(subject, of)}
        there = {of} if homes else self.clusters(subject, of)
        return next(iter(there)) if homes != {of} and len(there) == 1 else ""

    @cached_property
    def _homes(self) -> frozenset[str]:
        """Homes of which clients without a route of their own are led."""
        subjects = (one for table in self.tables for one in table if is_home(one))
        return frozenset(one.removeprefix(home_subject("")) for one in subjects)

    def _routes(self, home: str) -> KnownRoutes:
        if home not in self._known:
            self._known[home] = KnownRoutes(home)
            for subject, route in (item for table in self.tables for item in table.items()):
                self._known[home].add(subject, route)
        return self._known[home]
