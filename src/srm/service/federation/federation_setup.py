"""Connection of a service to the others, as its configuration requires."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from anyio.to_thread import run_sync

from srm.config.model import Config
from srm.service.federation.announcements import own_announcement
from srm.service.federation.federation import Federation
from srm.service.federation.peers import Neighbours, Opener
from srm.service.federation.remote import Remote


@dataclass(frozen=True)
class Joining:
    """Announcer, client and federation of this service; None for each that is off."""

    neighbours: Neighbours | None = None
    remote: Remote | None = None
    federation: Federation | None = None

    def start(self) -> None:
        """Begin to announce and to listen; a repeated call has no effect."""
        if self.neighbours is not None:
            self.neighbours.start()

    async def close(self) -> None:
        """Withdraw the announcement and close all connections to others."""
        if self.remote is not None:
            await self.remote.close()
        if self.neighbours is not None:
            await run_sync(self.neighbours.close)


def join(config: Config, watched: tuple[str, ...], opener: Opener | None = None) -> Joining:
    """Build the parts that ``service.advertise`` and ``service.remote.querying.enabled`` enable.

    Args:
        config: the configuration.
        watched: targets that this service watches.
        opener: opens a cluster; by default as configured.

    Raises:
        ConfigError: the settings lack a valid address of this service, or the trusted services.
    """
    settings = config.service
    if not settings.remote.advertise and not settings.remote.enabled:
        return Joining()
    instance = uuid.uuid4().hex
    own = own_announcement(settings, watched, instance) if settings.remote.advertise else None
    neighbours = Neighbours(config, own, instance, opener)
    if not settings.remote.enabled:
        return Joining(neighbours)
    remote = Remote(settings)
    expected = tuple(sorted({flow.target for flow in config.flows}))
    limit_s = settings.remote.timeout.total_seconds()
    federation = Federation(watched, expected, neighbours, remote, limit_s)
    return Joining(neighbours, remote, federation)
