"""Client of other services, with its trust rules, credentials and limits.

Any client with write access to the announcements topic of a cluster can name an address there.
Requests therefore go only to configured hosts and, with a configured authority, only by HTTPS.
They use routes under ``/internal``, follow no redirect, and limit an answer in time and size.
"""

from __future__ import annotations

import asyncio
import base64
import re
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final
from urllib.parse import unquote

import httpx

from srm.config.service import RemoteSettings, ServiceSettings
from srm.errors import ConfigError, UnavailableError, UsageError
from srm.service.access.tls import load
from srm.service.federation.peers import ServiceAnnouncement
from srm.service.views.responses import TARGET_HEADER

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
        self._context = _context(remote)
        self._transport = transport
        self._clock = clock
        self._client: httpx.AsyncClient | None = None
        self._resting: dict[str, float] = {}

    async def close(self) -> None:
        """Close all connections."""
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
        self.require_trusted(service)
        url = _address(service, path)
        if (wait := self._resting.get(service.url, 0.0) - self._clock()) > 0:
            raise UnavailableError(f"{service.url} did not answer; next request in {wait:.0f} s")
        limit_s = self._remote.timeout.total_seconds()
        try:
            async with asyncio.timeout(limit_s):
                reply = await self._ask(url, target, headers, most_bytes)
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

    def require_trusted(self, service: ServiceAnnouncement) -> None:
        """Raise if the configuration does not allow requests to a service."""
        hosts = self._remote.hosts
        if hosts and not any(is_named(service.host, pattern) for pattern in hosts):
            raise UnavailableError(f"{service.host} is not in service.remote.hosts: not queried")
        if self._remote.ca_location is not None and service.protocol != "https":
            raise UnavailableError(
                f"{service.url} has no certificate of service.remote.ssl.ca.location: not queried"
            )

    async def _ask(
        self, url: httpx.URL, target: str, headers: Mapping[str, str], most_bytes: int
    ) -> Reply:
        client = self._open_client()
        sent = {TARGET_HEADER: target, "Accept": ", ".join(_TYPES), "Accept-Encoding": "identity"}
        sent |= self._credentials(headers)
        sent |= {name: headers[name] for name in _PASSED_ON if name in headers}
        async with client.stream("GET", url, headers=sent) as response:
            media_type = response.headers.get("Content-Type", "").partition(";")[0]
            if "Content-Encoding" in response.headers:  # a few bytes may decode to many
                raise ValueError("it answers with a content encoding that was not requested")
            if response.status_code in {401, 403}:
                raise ValueError(f"it refuses these credentials ({response.status_code})")
            if response.status_code != 304 and media_type not in _TYPES:
                raise ValueError(
                    f"it answers {response.status_code} with {media_type or 'nothing'}"
                )
            body = bytearray()
            async for part in response.aiter_bytes():
                body += part
                if len(body) > most_bytes:
                    raise ValueError(f"it answers with more than {most_bytes / (1 << 20):.3g} MiB")
            etag = response.headers.get("ETag", "")
            told = {"ETag": etag} if _ETAG.fullmatch(etag) else {}
            return Reply(response.status_code, bytes(body), media_type, told)

    def _credentials(self, headers: Mapping[str, str]) -> dict[str, str]:
        if self._remote.username:
            pair = f"{self._remote.username}:{self._remote.password.reveal()}"
            return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
        given = headers.get("Authorization", "")
        return {"Authorization": given} if self._passes_tokens and given else {}

    def _open_client(self) -> httpx.AsyncClient:
        if self._client is None:
            self._client = httpx.AsyncClient(
                verify=self._context,
                transport=self._transport,
                timeout=self._remote.timeout.total_seconds(),
                trust_env=False,
                follow_redirects=False,
            )
        return self._client


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
        asked, url = httpx.URL(under), httpx.URL(f"{service.url}/internal{path}")
    except httpx.InvalidURL as error:
        raise UsageError(f"cannot request {path[:80]!r} from another service: {error}") from None
    is_there = url.copy_with(raw_path=asked.raw_path) == asked
    names = unquote(path.partition("?")[0]).split("/")
    if not is_there or not url.raw_path.startswith(asked.raw_path) or {".", ".."} & {*names}:
        raise UsageError(f"cannot request {path[:80]!r} from another service: a segment is . or ..")
    return url


def _context(remote: RemoteSettings) -> ssl.SSLContext:
    if remote.ca_location is None:
        context = ssl.create_default_context()
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        load("service.remote.ssl.ca.location", remote.ca_location, context.load_verify_locations)
    if remote.certificate_location is not None:
        password = remote.key_password.reveal()
        load(
            "service.remote.ssl.certificate.location",
            remote.certificate_location,
            lambda path: context.load_cert_chain(path, remote.key_location, lambda: password),
        )
    return context
