"""Other services: their announcements on the clusters, and a client with trust rules and limits.

Any client with write access to the announcements topic of a cluster can name an address there.
Requests therefore go only to configured hosts and, with a configured authority, only by HTTPS.
They use routes under ``/internal``, follow no redirect, and limit an answer in time and size.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from ipaddress import IPv6Address
from typing import Final, Literal
from urllib.parse import unquote

import httpx

from srm import __version__
from srm.clock import now_ms
from srm.config.model import Config, RemoteSettings, ServiceSettings
from srm.domain.names import internal_topics
from srm.domain.text.amount import ago
from srm.domain.text.documents import Document
from srm.engine.cluster_ports import Cluster
from srm.engine.control.control_topics import ensure_compacted
from srm.errors import ConfigError, IntegrityError, SrmError, UnavailableError, UsageError
from srm.kafka.cluster import KafkaCluster
from srm.service.access.access import read_limited
from srm.service.access.logins import authorities, load_chain
from srm.service.views.responses import TARGET_HEADER
from srm.service.views.watching import RepeatedTask, end_all

BEAT_S: Final = 5.0
MISSED: Final = 4
"""Number of missing announcements after which a service counts as stopped."""
_TIMEOUT_S: Final = 10.0
_KEPT: Final = {"cleanup.policy": "compact,delete", "retention.ms": "86400000"}
"""The record of a service that crashed expires after a day."""
_logger = logging.getLogger(__name__)

Opener = Callable[[str], AbstractContextManager[Cluster]]


@dataclass(frozen=True, slots=True)
class Heard:
    """An announcement, and the time of its last change by the clock of this service."""

    announcement: ServiceAnnouncement
    at: float


class Board(RepeatedTask):
    """Announcements on one cluster, read in a separate thread.

    A service counts for a target only if it announces itself on that target, because the right to
    write to one cluster gives no authority over another.

    ``own``: the announcement of this service, at ``now``; None: it announces nothing there.
    """

    def __init__(
        self,
        alias: str,
        own: ServiceAnnouncement | None,
        instance: str,
        opener: Opener,
        replication_factor: int = -1,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], int] = now_ms,
    ) -> None:
        super().__init__(f"srm-board-{alias}")
        self.alias = alias
        self.error = ""
        self._own = own
        self._instance = instance
        self._open = opener
        self._replicas = replication_factor
        self._clock = clock
        self._now = now
        self._heard: dict[bytes, Heard] = {}
        self._is_made = False
        self._twins = 0

    def watchers(self) -> tuple[ServiceAnnouncement, ...]:
        """Return the services that watch this cluster, the most recent announcement first."""
        begin = self._clock() - MISSED * BEAT_S
        return tuple(heard.announcement for heard in self._services() if heard.at >= begin)

    def silence(self) -> str:
        """Describe how long the most recent service has been silent; empty if none is known."""
        known = self._services()
        if not known:
            return ""
        age_ms = (self._clock() - known[0].at) * 1000
        return f"{known[0].announcement.url} last announced itself {ago(age_ms)}"

    def _services(self) -> list[Heard]:
        found = [h for h in self._heard.values() if self.alias in h.announcement.targets]
        return sorted(found, key=lambda heard: -heard.at)

    def beat(self, cluster: Cluster) -> None:
        """Announce this service once and read the other announcements; errors are stored."""
        try:
            if self._own is not None:
                if not self._is_made:
                    ensure_compacted(cluster, internal_topics.SERVICES, 1, self._replicas, _KEPT)
                    self._is_made = True
                now = replace(self._own, time_ms=self._now())
                cluster.compacted_topic(internal_topics.SERVICES).write({now.key(): now.value()})
            self._read(cluster)
            self.error = ""
        except Exception as error:  # noqa: BLE001 -- the thread must survive
            self._fail(error)

    def leave(self, cluster: Cluster) -> None:
        if self._own is not None and self._is_made:
            try:
                cluster.compacted_topic(internal_topics.SERVICES).write({self._own.key(): None})
            except SrmError as error:
                _logger.info("cannot withdraw announcement on %s: %s", self.alias, error)

    def _run(self) -> None:
        with self._open(self.alias) as cluster:
            while not self._closed.is_set():
                self.beat(cluster)
                self._closed.wait(BEAT_S)
            self.leave(cluster)

    def _fail(self, error: Exception) -> None:
        if not self.error:
            text = "cannot read the announced services on %s: %s"
            known = isinstance(error, SrmError)
            _logger.warning(text, self.alias, error, exc_info=None if known else error)
        self.error = str(error) or type(error).__name__

    def _read(self, cluster: Cluster) -> None:
        found: dict[bytes, Heard] = {}
        for key, value in cluster.compacted_topic(internal_topics.SERVICES).read().items():
            try:
                announcement = ServiceAnnouncement.decode(value)
            except IntegrityError as error:
                _logger.debug("%s on %s: %s", key, self.alias, error)
                continue
            if announcement.instance == self._instance:
                continue
            if self._own is not None and announcement.url == self._own.url:
                self._twins += 1  # the first ones may be of the predecessor of this process
                if self._twins == MISSED:
                    twins = "two services announce %s on %s: set service.advertised.host of each"
                    _logger.warning(twins, announcement.url, self.alias)
                continue
            known = self._heard.get(key)
            if known is None or known.announcement != announcement:
                known = Heard(announcement, self._clock())
            found[key] = known
        self._heard = found


class Neighbours:
    """All services announced on the configured clusters; ``own``: this one's, None: none."""

    def __init__(
        self,
        config: Config,
        own: ServiceAnnouncement | None,
        instance: str,
        opener: Opener | None = None,
    ) -> None:
        def follow(alias: str) -> AbstractContextManager[Cluster]:
            return KafkaCluster(alias, config.cluster_clients(alias), _TIMEOUT_S, follow=True)

        targets = own.targets if own is not None else ()
        self._boards = {
            alias: Board(
                alias,
                own if alias in targets else None,
                instance,
                opener or follow,
                config.service.remote.replication_factor,
            )
            for alias in config.clusters
        }

    def start(self) -> None:
        for board in self._boards.values():
            board.start()

    def close(self) -> None:
        end_all(self._boards.values())

    def watchers(self, target: str) -> tuple[ServiceAnnouncement, ...]:
        return self._boards[target].watchers() if target in self._boards else ()

    def watched_targets(self) -> tuple[str, ...]:
        return tuple(alias for alias, board in self._boards.items() if board.watchers())

    def error(self, target: str) -> str:
        board = self._boards.get(target)
        return "" if board is None else board.error or board.silence()


_HOST: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._\-]{0,252})")
_ROOT_PATH: Final = re.compile(r"(/[A-Za-z0-9_~\-][A-Za-z0-9._~\-]*)*")
_ANY: Final = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 -- compared only


@dataclass(frozen=True, slots=True)
class ServiceAnnouncement(Document):
    """The address of a service and the targets that it watches; IntegrityError: an unsafe part.

    ``instance`` distinguishes processes that announce the same address; ``time_ms``: its clock.
    """

    KIND = "announcement"

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
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.protocol}://{host}:{self.port}{self.root_path}"

    def key(self) -> bytes:
        """Encode the record key, which is the URL: a stopped service leaves at most one record."""
        return self.url.encode()


def _is_ipv6(host: str) -> bool:
    try:
        return bool(IPv6Address(host)) and "%" not in host
    except ValueError:
        return False


def announced_host(settings: ServiceSettings) -> str:
    bound = socket.getfqdn() if settings.host in _ANY else settings.host
    return settings.remote.host or bound


def own_announcement(
    settings: ServiceSettings, targets: tuple[str, ...], instance: str
) -> ServiceAnnouncement:
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


MOST_BYTES: Final = 64 << 20
_REST_S: Final = 10.0
"""Pause before a service that did not answer is queried again."""
_ETAG: Final = re.compile(r'(W/)?"[!#-~]{0,200}"')
_PASSED_ON: Final = ("If-None-Match",)
_TYPES: Final = ("application/json", "application/problem+json")


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer of another service; ``media_type`` is empty without a body."""

    status: int
    body: bytes
    media_type: str
    headers: Mapping[str, str]


class Remote:
    """Client of other services; ConfigError: the settings would trust any announcement."""

    def __init__(
        self,
        settings: ServiceSettings,
        transport: httpx.AsyncBaseTransport | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        remote = settings.remote
        if not remote.hosts and remote.ca_location is None:
            raise ConfigError(
                "service.remote.querying.enabled needs service.remote.hosts, or "
                "service.remote.ssl.ca.location; else any client with write access to a cluster "
                "could name any host (docs/service.md)"
            )
        self._remote = remote
        self._passes_tokens = settings.access.auth == "bearer"
        user, password = remote.username, remote.password.reveal()
        self._basic = httpx.BasicAuth(user, password) if user else None
        self._context = _context(remote)
        self._transport = transport
        self._clock = clock
        self._client: httpx.AsyncClient | None = None
        self._resting: dict[str, float] = {}

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def get(
        self,
        service: ServiceAnnouncement,
        target: str,
        path: str,
        headers: Mapping[str, str],
        most_bytes: int = MOST_BYTES,
    ) -> Reply:
        """Request a path, query included, of one target; UsageError: the path leads elsewhere."""
        if distrust := self.distrust(service):
            raise UnavailableError(distrust)
        url = _address(service, path)
        if (wait := self._resting.get(service.url, 0.0) - self._clock()) > 0:
            raise UnavailableError(f"{service.url} did not answer; next request in {wait:.0f} s")
        limit_s = self._remote.timeout.total_seconds()
        try:
            async with asyncio.timeout(limit_s):
                reply = await self._request(url, target, headers, most_bytes)
        except TimeoutError:
            why = f"no answer within {limit_s:g} s"
        except (httpx.HTTPError, ssl.SSLError, OSError) as error:
            why = str(error) or type(error).__name__
        except ValueError as error:
            # It answers, perhaps for other callers: no pause, so that those still reach it.
            raise UnavailableError(f"{service.url}: {error}") from error
        else:
            self._resting.pop(service.url, None)
            return reply
        now = self._clock()
        self._resting = {url: until for url, until in self._resting.items() if until > now}
        self._resting[service.url] = now + _REST_S
        raise UnavailableError(f"{service.url}: {why}")

    def distrust(self, service: ServiceAnnouncement) -> str:
        """Return why the configuration does not allow requests to a service; empty if it does."""
        hosts = self._remote.hosts
        if hosts and not any(is_named(service.host, pattern) for pattern in hosts):
            return f"{service.host} is not in service.remote.hosts: not queried"
        if self._remote.ca_location is not None and service.protocol != "https":
            return (
                f"{service.url} has no certificate of service.remote.ssl.ca.location: not queried"
            )
        return ""

    async def _request(
        self, url: httpx.URL, target: str, headers: Mapping[str, str], most_bytes: int
    ) -> Reply:
        if self._client is None:
            self._client = httpx.AsyncClient(
                verify=self._context,
                transport=self._transport,
                timeout=self._remote.timeout.total_seconds(),
                auth=self._basic,
                trust_env=False,
                follow_redirects=False,
            )
        sent = {TARGET_HEADER: target, "Accept": ", ".join(_TYPES), "Accept-Encoding": "identity"}
        if self._passes_tokens and self._basic is None and headers.get("Authorization"):
            sent["Authorization"] = headers["Authorization"]
        sent |= {name: headers[name] for name in _PASSED_ON if name in headers}
        async with self._client.stream("GET", url, headers=sent) as response:
            media_type = response.headers.get("Content-Type", "").partition(";")[0]
            if "Content-Encoding" in response.headers:  # a few bytes may decode to many
                raise ValueError("it answers with a content encoding that was not requested")
            if response.status_code in {401, 403}:
                raise ValueError(f"it refuses these credentials ({response.status_code})")
            if response.status_code != 304 and media_type not in _TYPES:
                raise ValueError(
                    f"it answers {response.status_code} with {media_type or 'nothing'}"
                )
            body = await read_limited(response.aiter_bytes(), most_bytes)
            if body is None:
                raise ValueError(f"it answers with more than {most_bytes / (1 << 20):.3g} MiB")
            etag = response.headers.get("ETag", "")
            kept = {"ETag": etag} if _ETAG.fullmatch(etag) else {}
            return Reply(response.status_code, body, media_type, kept)


def is_named(host: str, pattern: str) -> bool:
    """Return whether a pattern names a host; ``*`` matches any part of a label between two dots.

    In the last label it matches only a number: any registered domain ends in letters.
    """
    names, wanted = host.lower().split("."), pattern.lower().split(".")
    if len(names) != len(wanted) or not all(map(fnmatchcase, names, wanted)):
        return False
    return len(names) == 1 or names[-1] == wanted[-1] or names[-1].isdecimal()


def _address(service: ServiceAnnouncement, path: str) -> httpx.URL:
    """Return the URL of a path under ``/internal``, which encoded dot segments must not leave."""
    under = f"{service.url}/internal/"
    try:
        base, url = httpx.URL(under), httpx.URL(f"{service.url}/internal{path}")
    except httpx.InvalidURL as error:
        raise UsageError(f"cannot request {path[:80]!r} from another service: {error}") from None
    is_there = url.copy_with(raw_path=base.raw_path) == base
    names = unquote(path.partition("?")[0]).split("/")
    if not is_there or not url.raw_path.startswith(base.raw_path) or {".", ".."} & {*names}:
        raise UsageError(f"cannot request {path[:80]!r} from another service: a segment is . or ..")
    return url


def _context(remote: RemoteSettings) -> ssl.SSLContext:
    context = authorities("service.remote.ssl.ca.location", remote.ca_location)
    if remote.certificate_location is not None:
        load_chain(context, "service.remote.ssl", remote)
    return context
