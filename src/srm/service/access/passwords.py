"""Login by name and password: slow for guesses, fast for repeated logins."""

from __future__ import annotations

import base64
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from anyio.to_thread import run_sync
from fastapi import Depends, HTTPException, Request
from fastapi.security import HTTPBasic, HTTPBasicCredentials
from fastapi.security.utils import get_authorization_scheme_param

from srm.config.service import AccessSettings
from srm.errors import ConfigError, UnavailableError
from srm.service.access.access import LONGEST_NAME, Authenticator, User, address, audit, roles
from srm.service.access.concurrency_limit import FairTurns
from srm.service.access.users import Known, PasswordHash, UserEntry, UsersFile, Who

_CHALLENGE: Final = {"WWW-Authenticate": 'Basic realm="srm", charset="UTF-8"'}
_WRONG: Final = "name or password is wrong"
_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 30.0
_REMEMBERED: Final = 10_000
_TRUSTED_WRONG: Final = 10
"""Number of wrong passwords after which a known address of a user has to wait, too."""
_logger = logging.getLogger(__name__)


def password_access(
    settings: AccessSettings, users: UsersFile, clock: Callable[[], float] = time.monotonic
) -> Authenticator:
    """Admit clients with the password of a user; ``clock`` returns monotonic seconds."""
    return Authenticator(_Passwords(settings, users, clock).identify)


class _Basic(HTTPBasic):
    """Reads name and password in UTF-8 (RFC 7617), where FastAPI accepts only ASCII."""

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


class _WrongOnes:
    """Wrong passwords by address and user, and the wait after them.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._found: OrderedDict[Who, tuple[int, float]] = OrderedDict()

    def wait_s(self, who: Who) -> float:
        """Return the remaining wait in seconds; zero or less means that a try is allowed."""
        return self._found.get(who, (0, 0.0))[1] - self._clock()

    def add(self, who: Who) -> int:
        """Count a wrong password and double the wait; return the count."""
        count, _ = self._found.get(who, (0, 0.0))
        pause = min(_FIRST_PAUSE_S * 2.0 ** min(count, 10), _LONGEST_PAUSE_S)
        self._found[who] = (count + 1, self._clock() + pause)
        self._found.move_to_end(who)
        if len(self._found) > _REMEMBERED:
            self._found.popitem(last=False)
        return count + 1

    def add_early(self, who: Who) -> int:
        """Count a try during the wait, which makes the next wait longer; return the count."""
        count, until = self._found[who]
        self._found[who] = (count + 1, until)
        return count + 1

    def forget(self, who: Who) -> None:
        """Forget the wrong passwords after a login."""
        self._found.pop(who, None)


class _Passwords:
    """Checks names and passwords with a slow hash, once per address for each right password.

    After a wrong password the same name from the same address has to wait, longer each time. During
    the wait the right password counts only from an address with an earlier login. Guesses from
    another address therefore cannot lock a user out, and only that user gets the fast check.

    Args:
        settings: settings of access.
        users: file of users.
        clock: monotonic seconds.
    """

    def __init__(
        self, settings: AccessSettings, users: UsersFile, clock: Callable[[], float]
    ) -> None:
        self._settings = settings
        self._users = users
        self._known = Known()
        self._wrong = _WrongOnes(clock)
        self._nobody = UserEntry(PasswordHash.of("nobody"))
        self._turns = FairTurns()  # guesses use one core at most

    async def identify(
        self,
        request: Request,
        given: HTTPBasicCredentials | None = Depends(_Basic()),  # noqa: B008 -- as FastAPI requires
    ) -> User:
        if given is None:
            raise HTTPException(401, "give a name and a password", _CHALLENGE)
        name, password = given.username, given.password
        entry = self._entry(name)
        if entry is None and len(name) > LONGEST_NAME:  # do not store long names
            raise HTTPException(401, _WRONG, _CHALLENGE)
        who = (address(request), name)
        if not self._came_in(who, password, entry):
            async with self._turn(who):  # the result of one guess counts for those that wait
                if not self._came_in(who, password, entry):
                    await self._check(who, password, entry)
        assert entry is not None  # noqa: S101 -- checked
        return User(name, roles(self._settings, {name, *entry.groups}))

    def _entry(self, name: str) -> UserEntry | None:
        try:
            return self._users.users().get(name)
        except ConfigError as error:
            _logger.error("no user can log in: %s", error)  # noqa: TRY400 -- a setting, not a fault
            raise HTTPException(503, "cannot read the file of users; see the log") from None

    def _came_in(self, who: Who, password: str, entry: UserEntry | None) -> bool:
        """Return whether the password is known to be right; else refuse it during a wait."""
        if entry is not None and self._known.has(who, password, entry):
            return True
        if (wait := self._wrong.wait_s(who)) > 0:
            self._refuse(who, self._wrong.add_early(who), ": wait after wrong passwords")
            raise _too_many("too many wrong passwords; wait and try again", int(wait) + 1)
        return False

    @asynccontextmanager
    async def _turn(self, who: Who) -> AsyncIterator[None]:
        try:
            async with self._turns.turn(who[0]):
                yield
        except UnavailableError as error:
            audit.warning("login of %r from %s refused: %s", who[1], who[0], error)
            raise _too_many(str(error), 1) from None

    async def _check(self, who: Who, password: str, entry: UserEntry | None) -> None:
        hashed = (entry or self._nobody).password
        right = await run_sync(hashed.matches, password)
        if right and entry is not None:
            self._known.add(who, password, entry)
            self._wrong.forget(who)
            return
        self._refuse(who, self._wrong.add(who))
        raise HTTPException(401, _WRONG, _CHALLENGE)

    def _refuse(self, who: Who, count: int, why: str = "") -> None:
        if count >= _TRUSTED_WRONG:
            self._known.forget(who)
        audit.warning("login of %r from %s refused%s", who[1], who[0], why)


def _too_many(why: str, retry_after_s: int) -> HTTPException:
    return HTTPException(429, why, {"Retry-After": str(retry_after_s)})
