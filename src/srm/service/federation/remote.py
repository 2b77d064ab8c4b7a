"""Asking another service: whom, with which credentials, and for how long.

Anybody who may write to a cluster's topic of announcements can name an address there. So only
hosts that the configuration names are asked, and those that show a certificate where it names an
authority; what is asked for is always a route under ``/internal``, no redirect is followed, and an
answer has its limits in time and size.
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
from srm.service.federation.announcements import ServiceAnnouncement

TARGET_HEADER: Final = "X-SRM-Target"
"""Of which target alone another service is to answer."""
MOST_BYTES: Final = 64 << 20
_REST_S: Final = 10.0
"""One that did not answer is not waited for again at once."""
_ETAG: Final = re.compile(r'(W/)?"[!#-~]{0,200}"')
_PASSED_ON: Final = ("If-None-Match",)
_TYPES: Final = ("application/json", "application/problem+json")


@dataclass(frozen=True, slots=True)
class Reply:
    """What another service has answered; ``media_type`` is empty without a body."""

    status: int
    body: bytes
    media_type: str
    headers: Mapping[str, str]


class Remote:
    """Asks other services.

    Args:
        settings: of this service.
        transport: what carries the requests, instead of the network.
        clock: monotonic seconds.

    Raises:
        ConfigError: at construction, the settings trust whoever announces something, or name files
            that cannot be used.
    """

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
                "service.remote.ssl.ca.location: whoever may write to a cluster could name any "
                "host (docs/service.md)"
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
        """Ask a service for a path, query included, of one target.

        Args:
            service: whom.
            target: alias; it answers of this one alone.
            path: as this service was asked, such as ``/v2/flows?limit=10``.
            headers: of the request that this service was asked with.
            most_bytes: that the body may have.

        Raises:
            UsageError: the path cannot be asked for at another service.
            UnavailableError: it may not be asked, does not answer in time, or not as a service.
        """
        self.require_trusted(service)
        url = _address(service, path)
        if (wait := self._resting.get(service.url, 0.0) - self._clock()) > 0:
            raise UnavailableError(f"{service.url} did not answer; asked again in {wait:.0f} s")
        limit_s = self._remote.timeout.total_seconds()
        try:
            async with asyncio.timeout(limit_s):
                reply = await self._ask(url, target, headers, most_bytes)
        except TimeoutError:
            why = f"no answer within {limit_s:g} s"
        except (httpx.HTTPError, ssl.SSLError, OSError) as error:
            why = str(error) or type(error).__name__
        except ValueError as error:
            # It does answer, perhaps only this one who asks: others are not to miss it.
            raise UnavailableError(f"{service.url}: {error}") from error
        else:
            self._resting.pop(service.url, None)
            return reply
        now = self._clock()
        self._resting = {url: until for url, until in self._resting.items() if until > now}
        self._resting[service.url] = now + _REST_S
        raise UnavailableError(f"{service.url}: {why}")

    def require_trusted(self, service: ServiceAnnouncement) -> None:
        """Raise where a service may not be asked.

        Raises:
            UnavailableError: its host is not named, or it shows no certificate where authorities
                are: an announcement could name a host by plain HTTP, and credentials would be
                there to read.
        """
        hosts = self._remote.hosts
        if hosts and not any(is_named(service.host, pattern) for pattern in hosts):
            raise UnavailableError(f"{service.host} is none of service.remote.hosts: not asked")
        if self._remote.ca_location is not None and service.protocol != "https":
            raise UnavailableError(
                f"{service.url} shows no certificate of service.remote.ssl.ca.location: not asked"
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
            if "Content-Encoding" in response.headers:  # a little of that may be much memory
                raise ValueError("it answers with a content encoding that was not asked for")
            if response.status_code in {401, 403}:
                raise ValueError(f"it lets nobody in as this service ({response.status_code})")
            if response.status_code != 304 and media_type not in _TYPES:
                raise ValueError(
                    f"it answers {response.status_code} with {media_type or 'nothing'}"
                )
            body = bytearray()
            async for part in response.aiter_bytes():
                body += part
                if len(body) > most_bytes:
                    raise ValueError(f"it answers more than {most_bytes / (1 << 20):.3g} MiB")
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
    """Whether a pattern names a host; ``*`` stands for any part of what is between two dots.

    Behind the last dot it stands for a number: domains that anybody can have end in letters.
    """
    names, wanted = host.lower().split("."), pattern.lower().split(".")
    if len(names) != len(wanted) or not all(map(fnmatchcase, names, wanted)):
        return False
    return len(names) == 1 or names[-1] == wanted[-1] or names[-1].isdecimal()


def _address(service: ServiceAnnouncement, path: str) -> httpx.URL:
    """Return where a path is asked for, which is under ``/internal`` whatever names are in it.

    Names ``.`` and ``..`` would lead out of there, by the client or by a proxy on the way, however
    they are written.
    """
    under = f"{service.url}/internal/"
    try:
        asked, url = httpx.URL(under), httpx.URL(f"{service.url}/internal{path}")
    except httpx.InvalidURL as error:
        raise UsageError(f"{path[:80]!r} cannot be asked for at another service: {error}") from None
    is_there = url.copy_with(raw_path=asked.raw_path) == asked
    names = unquote(path.partition("?")[0]).split("/")
    if not is_there or not url.raw_path.startswith(asked.raw_path) or {".", ".."} & {*names}:
        raise UsageError(
            f"{path[:80]!r} cannot be asked for at another service: a name in it is . or .."
        )
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
