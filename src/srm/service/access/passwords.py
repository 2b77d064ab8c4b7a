"""Users known by name and password: slow to guess, quick for who came in before."""

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
"""So many wrong passwords from where a user came in before, and he has to wait there, too."""
_logger = logging.getLogger(__name__)


def password_access(
    settings: AccessSettings, users: UsersFile, clock: Callable[[], float] = time.monotonic
) -> Authenticator:
    """Let in who gives the password of a user; ``clock`` gives monotonic seconds."""
    return Authenticator(_Passwords(settings, users, clock).identify)


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


class _WrongOnes:
    """Wrong passwords by who gave them, and how long he has to wait after them.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._found: OrderedDict[Who, tuple[int, float]] = OrderedDict()

    def wait_s(self, who: Who) -> float:
        """Return how long somebody has to wait yet; nothing or less: he may try."""
        return self._found.get(who, (0, 0.0))[1] - self._clock()

    def add(self, who: Who) -> int:
        """Have somebody wait, longer each time; return how many there are of him."""
        count, _ = self._found.get(who, (0, 0.0))
        pause = min(_FIRST_PAUSE_S * 2.0 ** min(count, 10), _LONGEST_PAUSE_S)
        self._found[who] = (count + 1, self._clock() + pause)
        self._found.move_to_end(who)
        if len(self._found) > _REMEMBERED:
            self._found.popitem(last=False)
        return count + 1

    def add_early(self, who: Who) -> int:
        """Count what somebody tries while he has to wait: that makes the next wait longer."""
        count, until = self._found[who]
        self._found[who] = (count + 1, until)
        return count + 1

    def forget(self, who: Who) -> None:
        """Forget those of somebody who came in."""
        self._found.pop(who, None)


class _Passwords:
    """Checks names and passwords, slowly on purpose, but each right one only once per address.

    After wrong ones the same name from the same address has to wait, longer each time, whatever it
    gives. Only from where a name came in before does the right password count meanwhile: so nobody
    is locked out by guesses from elsewhere, and what is quick for him is so for nobody else.

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
        self._known = Known()
        self._wrong = _WrongOnes(clock)
        self._nobody = UserEntry(PasswordHash.of("nobody"))
        self._turns = FairTurns()  # guesses take one core at most

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
        who = (address(request), name)
        if not self._came_in(who, password, entry):
            async with self._turn(who):  # what one guess comes to counts for those that wait
                if not self._came_in(who, password, entry):
                    await self._check(who, password, entry)
        assert entry is not None  # noqa: S101 -- checked
        return User(name, roles(self._settings, {name, *entry.groups}))

    def _entry(self, name: str) -> UserEntry | None:
        try:
            return self._users.users().get(name)
        except ConfigError as error:
            _logger.error("nobody comes in: %s", error)  # noqa: TRY400 -- a setting, not a fault
            raise HTTPException(503, "users cannot be read now; see the log") from None

    def _came_in(self, who: Who, password: str, entry: UserEntry | None) -> bool:
        """Whether it is known to be right; who is not known has to wait after wrong ones."""
        if entry is not None and self._known.has(who, password, entry):
            return True
        if (wait := self._wrong.wait_s(who)) > 0:
            self._refuse(who, self._wrong.add_early(who), ": it has to wait")
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
