"""Announcement of a service: its address and the targets that it watches."""

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
_ANY: Final = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 -- compared only


@dataclass(frozen=True, slots=True)
class ServiceAnnouncement:
    """The address of a service, ``protocol://host:port/root_path``, and the targets it watches.

    ``instance`` distinguishes processes that announce the same address.
    ``time_ms`` is the epoch time of this announcement by the clock of that process.

    Raises:
        IntegrityError: at construction, a part is not valid in an address. The check keeps
            requests within the routes of a service.
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
            raise IntegrityError(f"invalid host {self.host[:50]!r}; use a name or an IP address")
        if not 0 < self.port < 65_536:
            raise IntegrityError(f"invalid port {self.port}; use 1 to 65535")
        if not _ROOT_PATH.fullmatch(self.root_path) or len(self.root_path) > 200:
            raise IntegrityError(f"invalid root path {self.root_path[:50]!r}; use for example /srm")

    @property
    def url(self) -> str:
        """The address, without a route."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.protocol}://{host}:{self.port}{self.root_path}"

    def key(self) -> bytes:
        """Encode the record key, which is the URL: a stopped service leaves at most one record."""
        return self.url.encode()

    def value(self) -> bytes:
        """Encode the record value."""
        return documents.encode(self)

    @classmethod
    def decode(cls, value: bytes) -> ServiceAnnouncement:
        """Decode a record value.

        Raises:
            IntegrityError: the value is not an announcement.
        """
        return documents.decode(cls, "announcement", value)


def _is_ipv6(host: str) -> bool:
    try:
        return bool(IPv6Address(host)) and "%" not in host
    except ValueError:
        return False


def announced_host(settings: ServiceSettings) -> str:
    """Return the name or address under which other services reach this one."""
    bound = socket.getfqdn() if settings.host in _ANY else settings.host
    return settings.remote.host or bound


def own_announcement(
    settings: ServiceSettings, targets: tuple[str, ...], instance: str
) -> ServiceAnnouncement:
    """Return the announcement of this service.

    Raises:
        ConfigError: the settings do not give a valid address.
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
