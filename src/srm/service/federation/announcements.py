"""What a service announces of itself: where it is asked, and for which targets."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import Final, Literal

from srm import __version__
from srm.config.service import ServiceSettings
from srm.domain.text import documents
from srm.errors import ConfigError, IntegrityError

_HOST: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._\-]{0,252})")
_ROOT_PATH: Final = re.compile(r"(/[A-Za-z0-9_~\-][A-Za-z0-9._~\-]*)*")
_ANY: Final = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 -- to tell them from an address


@dataclass(frozen=True, slots=True)
class ServiceAnnouncement:
    """Where a service is asked: ``protocol://host:port/root_path``, and what it watches.

    ``instance`` tells processes apart that announce the same address, ``time_ms`` is the epoch
    time of this announcement by that process's clock.

    Raises:
        IntegrityError: at construction, a part cannot stand in an address, so nothing but the
            routes of a service can be asked for with it.
    """

    protocol: Literal["http", "https"]
    host: str
    port: int
    root_path: str
    targets: tuple[str, ...]
    version: str
    instance: str
    time_ms: int

    def __post_init__(self) -> None:
        if not (_HOST.fullmatch(self.host) or _is_ipv6(self.host)):
            raise IntegrityError(f"{self.host[:50]!r} is no host")
        if not 0 < self.port < 65_536:
            raise IntegrityError(f"{self.port} is no port")
        if not _ROOT_PATH.fullmatch(self.root_path) or len(self.root_path) > 200:
            raise IntegrityError(f"{self.root_path[:50]!r} is no path before routes, as in /srm")

    @property
    def url(self) -> str:
        """The address before the routes."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.protocol}://{host}:{self.port}{self.root_path}"

    def key(self) -> bytes:
        """Encode the record key: one for each address, so a service that is gone leaves one."""
        return self.url.encode()

    def value(self) -> bytes:
        """Encode the record value."""
        return documents.encode(self)

    @classmethod
    def decode(cls, value: bytes) -> ServiceAnnouncement:
        """Decode a record value.

        Raises:
            IntegrityError: it is no announcement.
        """
        return documents.decode(cls, "announcement", value)


def _is_ipv6(host: str) -> bool:
    try:
        return bool(IPv6Address(host)) and "%" not in host
    except ValueError:
        return False


def announced_host(settings: ServiceSettings) -> str:
    """Return the name or address under which other services ask this one."""
    bound = socket.getfqdn() if settings.host in _ANY else settings.host
    return settings.remote.host or bound


def own_announcement(
    settings: ServiceSettings, targets: tuple[str, ...], instance: str
) -> ServiceAnnouncement:
    """Return what a service says of itself.

    Raises:
        ConfigError: the settings do not say where it is asked.
    """
    remote = settings.remote
    is_tls = settings.access.certificate_location is not None
    port = remote.port or settings.port
    if not port:
        raise ConfigError("service.port = 0 cannot be announced: set service.advertised.port")
    try:
        return ServiceAnnouncement(
            remote.protocol or ("https" if is_tls else "http"),
            announced_host(settings),
            port,
            (settings.root_path if remote.root_path is None else remote.root_path).rstrip("/"),
            targets,
            __version__,
            instance,
            0,
        )
    except IntegrityError as error:
        raise ConfigError(f"service.advertised: {error}") from None
