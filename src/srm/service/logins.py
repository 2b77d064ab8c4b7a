"""How users are known where the service stands alone: nobody, passwords, certificates.

Bearer tokens are in :mod:`srm.service.tokens`.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final

from anyio.to_thread import run_sync
from fastapi import Depends, HTTPException, Request
from fastapi.security import HTTPBasic, HTTPBasicCredentials
from fastapi.security.utils import get_authorization_scheme_param

from srm.config.service import AccessSettings, ServiceSettings
from srm.errors import ConfigError
from srm.service.access import ANONYMOUS, LONGEST_NAME, Access, User, address, audit, roles
from srm.service.hosts import is_loopback
from srm.service.tls import PEER
from srm.service.tokens import bearer_access
from srm.service.users import Entry, Known, PasswordHash, UsersFile

_CHALLENGE: Final = {"WWW-Authenticate": 'Basic realm="srm", charset="UTF-8"'}
_WRONG: Final = "name or password is wrong"
_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 30.0
_REMEMBERED: Final = 10_000
_logger = logging.getLogger(__name__)


def access_of(settings: ServiceSettings, host: str) -> Access:
    """Return what guards the routes of a service that stands alone.

    Args:
        settings: of the service.
        host: address that it listens on.

    Raises:
        ConfigError: the settings let in whoever reaches the service, or lack something.
    """
    return _KINDS[settings.access.auth](settings.access, host)


def _nobody(settings: AccessSettings, host: str) -> Access:
    """Everybody is the same user; from this machine only, unless that is waived."""
    if not settings.insecure and not is_loopback(host):
        raise ConfigError(
            f"service.host = {host} is reached by others, and service.auth = none lets all of them "
            "in: set service.auth (docs/service-access.md), or confirm with service.insecure = true"
        )

    def identify() -> User:
        return User(ANONYMOUS, roles(settings, {ANONYMOUS}))

    return Access(identify)


class _Basic(HTTPBasic):
    """Reads name and password from a request; FastAPI's own takes ASCII only, against RFC 7617."""

    def __init__(self) -> None:
        super().__init__(scheme_name="password", auto_error=False)

    async def __call__(self, request: Request) -> HTTPBasicCredentials | None:  # type: ignore[override]
        scheme, given = get_authorization_scheme_param(request.headers.get("Authorization"))
        if scheme.lower() != "basic":
            return None
        try:
            text = base64.b64decode(given, validate=True).decode()
        except ValueError:
            return None
        name, colon, password = text.partition(":")
        return HTTPBasicCredentials(username=name, password=password) if colon else None


class _Passwords:
    """Checks names and passwords, slowly on purpose, but each right one only once.

    After wrong ones the same name from the same address has to wait, longer each time; who came in
    before does not, so nobody is locked out by somebody else's guesses.

    Args:
        settings: of access.
        users: their file.
        clock: monotonic seconds.
    """

    def __init__(
        self, settings: AccessSettings, users: UsersFile, clock: Callable[[], float]
    ) -> None:
        self._settings = settings
        self._users = users
        self._clock = clock
        self._known = Known()
        self._wrong: OrderedDict[tuple[str, str], tuple[int, float]] = OrderedDict()
        self._nobody = Entry(PasswordHash.of("nobody"))
        self._checking = asyncio.Lock()  # guesses take one core at most

    async def identify(
        self,
        request: Request,
        given: HTTPBasicCredentials | None = Depends(_Basic()),  # noqa: B008 -- as FastAPI wants it
    ) -> User:
        if given is None:
            raise HTTPException(401, "give a name and a password", _CHALLENGE)
        name, password = given.username, given.password
        entry = self._entry(name)
        if entry is None and len(name) > LONGEST_NAME:  # nothing that is worth its memory
            raise HTTPException(401, _WRONG, _CHALLENGE)
        if not self._is_known(name, password, entry):
            async with self._checking:  # what one guess comes to counts for those that wait
                if not self._is_known(name, password, entry):
                    await self._check((address(request), name), password, entry)
        assert entry is not None  # noqa: S101 -- checked
        return User(name, roles(self._settings, {name, *entry.groups}))

    def _is_known(self, name: str, password: str, entry: Entry | None) -> bool:
        return entry is not None and self._known.has(name, password, entry)

    def _entry(self, name: str) -> Entry | None:
        try:
            return self._users.users().get(name)
        except ConfigError as error:
            _logger.error("nobody comes in: %s", error)  # noqa: TRY400 -- a setting, not a fault
            raise HTTPException(503, "users cannot be read now; see the log") from None

    async def _check(self, who: tuple[str, str], password: str, entry: Entry | None) -> None:
        count, until = self._wrong.get(who, (0, 0.0))
        if (wait := until - self._clock()) > 0:
            headers = {"Retry-After": str(int(wait) + 1)}
            raise HTTPException(429, "too many wrong passwords; wait and try again", headers)
        hashed = (entry or self._nobody).password
        right = await run_sync(hashed.matches, password)
        if right and entry is not None:
            self._known.add(who[1], password, entry)
            self._wrong.pop(who, None)
            return
        audit.warning("login of %r from %s refused", who[1], who[0])
        pause = min(_FIRST_PAUSE_S * 2.0 ** min(count, 10), _LONGEST_PAUSE_S)
        self._wrong[who] = (count + 1, self._clock() + pause)
        self._wrong.move_to_end(who)
        if len(self._wrong) > _REMEMBERED:
            self._wrong.popitem(last=False)
        raise HTTPException(401, _WRONG, _CHALLENGE)


def password_access(
    settings: AccessSettings, users: UsersFile, clock: Callable[[], float] = time.monotonic
) -> Access:
    """Let in who gives the password of a user; ``clock`` gives monotonic seconds."""
    return Access(_Passwords(settings, users, clock).identify)


def _passwords(settings: AccessSettings, _host: str) -> Access:
    if settings.users_location is None:
        raise ConfigError(
            "service.auth = basic needs service.users.location: a file with the lines that "
            "'srm-service password NAME' writes"
        )
    return password_access(settings, UsersFile(settings.users_location))


def _certificates(settings: AccessSettings, _host: str) -> Access:
    """Who came in has shown a certificate: that is checked before the first byte of a request."""
    if settings.certificate_location is None or settings.ca_location is None:
        raise ConfigError(
            "service.auth = mtls needs service.ssl.certificate.location, service.ssl.key.location "
            "and service.ssl.ca.location"
        )

    def identify(request: Request) -> User:
        name = common_name(getattr(request.state, PEER, None) or {})
        if not name:
            raise HTTPException(401, "the certificate has no common name (CN)")
        return User(name, roles(settings, {name}))

    return Access(identify)


def common_name(certificate: Mapping[str, Any]) -> str:
    """Return the last common name of a certificate's subject, as Python's ssl module gives it."""
    named = [
        value
        for part in certificate.get("subject", ())
        for key, value in part
        if key == "commonName"
    ]
    return str(named[-1]) if named else ""


_KINDS: Final[Mapping[str, Callable[[AccessSettings, str], Access]]] = {
    "none": _nobody,
    "basic": _passwords,
    "bearer": lambda settings, _host: bearer_access(settings),
    "mtls": _certificates,
}
