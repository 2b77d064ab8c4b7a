"""Login by name and password, from a file of users: slow for guesses, fast for repeated logins."""

from __future__ import annotations

import base64
import hmac
import logging
import os
import re
import stat
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Final

from anyio.to_thread import run_sync
from cryptography.exceptions import InvalidKey
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id
from fastapi import Depends, HTTPException, Request
from fastapi.security import HTTPBasic, HTTPBasicCredentials
from fastapi.security.utils import get_authorization_scheme_param

from srm.config.model import AccessSettings
from srm.errors import ConfigError, UnavailableError, UsageError
from srm.files import file_stamp
from srm.service.access import access

_CHALLENGE: Final = {"WWW-Authenticate": 'Basic realm="srm", charset="UTF-8"'}
_WRONG: Final = "name or password is wrong"
_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 30.0
_REMEMBERED: Final = 10_000
_TRUSTED_WRONG: Final = 10
"""Number of wrong passwords after which a known address of a user has to wait, too."""
_logger = logging.getLogger(__name__)


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
    """Wrong passwords by address and user, and the wait after them."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._found: dict[Who, tuple[int, float]] = {}

    def wait_s(self, who: Who) -> float:
        """Return the remaining wait in seconds; zero or less means that a try is allowed."""
        return self._found.get(who, (0, 0.0))[1] - self._clock()

    def add(self, who: Who) -> int:
        """Count a wrong password, or a try during the wait; return the count.

        A wrong password begins a wait, twice as long for each counted try.
        """
        count, until = self._found.get(who, (0, 0.0))
        if until <= self._clock():
            pause = min(_FIRST_PAUSE_S * 2.0 ** min(count, 10), _LONGEST_PAUSE_S)
            until = self._clock() + pause
            self.forget(who)  # it becomes the newest
        self._found[who] = (count + 1, until)
        if len(self._found) > _REMEMBERED:
            del self._found[next(iter(self._found))]
        return count + 1

    def forget(self, who: Who) -> None:
        self._found.pop(who, None)


class Passwords:
    """Checks names and passwords with a slow hash, once per address for each right password.

    After a wrong password the same name from the same address has to wait, longer each time. During
    the wait the right password counts only from an address with an earlier login. Guesses from
    another address therefore cannot lock a user out, and only that user gets the fast check.
    """

    def __init__(
        self, settings: AccessSettings, users: UsersFile, clock: Callable[[], float] = monotonic
    ) -> None:
        self._settings = settings
        self._users = users
        self._known = Known()
        self._wrong = _WrongOnes(clock)
        self._unknown_user = UserEntry(hash_password(""))
        self._turns = access.FairTurns()  # guesses use one core at most

    async def identify(
        self,
        request: Request,
        given: HTTPBasicCredentials | None = Depends(_Basic()),  # noqa: B008 -- as FastAPI requires
    ) -> access.User:
        if given is None:
            raise HTTPException(401, "give a name and a password", _CHALLENGE)
        name, password = given.username, given.password
        entry = self._entry(name)
        if entry is None and len(name) > access.LONGEST_NAME:  # do not store long names
            raise HTTPException(401, _WRONG, _CHALLENGE)
        who = (access.address(request), name)
        if not self._came_in(who, password, entry):
            async with self._turn(who):  # the result of one guess counts for those that wait
                if not self._came_in(who, password, entry):
                    await self._check(who, password, entry)
        assert entry is not None  # noqa: S101 -- checked
        return access.User(name, access.roles(self._settings, {name, *entry.groups}))

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
            self._refuse(who, self._wrong.add(who), ": wait after wrong passwords")
            raise _too_many("too many wrong passwords; wait and try again", int(wait) + 1)
        return False

    @asynccontextmanager
    async def _turn(self, who: Who) -> AsyncIterator[None]:
        try:
            async with self._turns.turn(who[0]):
                yield
        except UnavailableError as error:
            access.audit.warning("login of %r from %s refused: %s", who[1], who[0], error)
            raise _too_many(str(error), 1) from None

    async def _check(self, who: Who, password: str, entry: UserEntry | None) -> None:
        right = await run_sync(matches, (entry or self._unknown_user).hashed, password)
        if right and entry is not None:
            self._known.add(who, password, entry)
            self._wrong.forget(who)
            return
        self._refuse(who, self._wrong.add(who))
        raise HTTPException(401, _WRONG, _CHALLENGE)

    def _refuse(self, who: Who, count: int, why: str = "") -> None:
        if count >= _TRUSTED_WRONG:
            self._known.forget(who)
        access.audit.warning("login of %r from %s refused%s", who[1], who[0], why)


def _too_many(why: str, retry_after_s: int) -> HTTPException:
    return HTTPException(429, why, {"Retry-After": str(retry_after_s)})


_KEY: Final = "service.users.location"
_KIB: Final = 46 * 1024
"""Memory of a guess of one pass, as OWASP's Password Storage Cheat Sheet advises for Argon2id."""
_MOST_KIB: Final = 1 << 20
_SALT_BYTES: Final = 16
_KEY_BYTES: Final = 32
_HASH: Final = re.compile(
    r"\$argon2id\$v=19\$m=(\d{1,7}),t=\d{1,2},p=\d\$[A-Za-z0-9+/]{22}\$[A-Za-z0-9+/]{43}"
)
_NAME: Final = re.compile(r"[^:\s#][^:\n]*")
_MOST_KNOWN: Final = 10_000
_EVERYBODY: Final = stat.S_IROTH | stat.S_IWOTH

Who = tuple[str, str]
"""An address, and the user name in its request."""


def hash_password(password: str) -> str:
    """Return a hash as the file has it: ``$argon2id$v=19$m=47104,t=1,p=1$SALT$KEY``."""
    salt = os.urandom(_SALT_BYTES)
    kdf = Argon2id(salt=salt, length=_KEY_BYTES, iterations=1, lanes=1, memory_cost=_KIB)
    return kdf.derive_phc_encoded(password.encode())


def matches(hashed: str, password: str) -> bool:
    """Return whether the hash is of this password, in constant time."""
    try:
        Argon2id.verify_phc_encoded(password.encode(), hashed)
    except InvalidKey:
        return False
    return True


@dataclass(frozen=True, slots=True)
class UserEntry:
    """One user: the hash of the password, and the groups."""

    hashed: str
    groups: frozenset[str] = frozenset()


def line(name: str, password: str, groups: tuple[str, ...] = ()) -> str:
    """Return a line of the file: ``NAME:HASH`` or ``NAME:HASH:GROUP,GROUP``."""
    if not _NAME.fullmatch(name) or name != name.strip():
        raise UsageError(f"{name!r} is not a valid user name; omit colons and outer blanks")
    if not password:
        raise UsageError(f"the password of {name} is empty; nothing was written")
    entry = f"{name}:{hash_password(password)}"
    return f"{entry}:{','.join(groups)}" if groups else entry


def parse_users(text: str, where: str) -> dict[str, UserEntry]:
    """Parse the lines of the file; empty ones and those that begin with ``#`` are skipped."""
    found: dict[str, UserEntry] = {}
    for number, written in enumerate(text.splitlines(), 1):
        if not written.strip() or written.startswith("#"):
            continue
        name, _, rest = written.partition(":")
        hashed, _, groups = rest.partition(":")
        form = _HASH.fullmatch(hashed := hashed.strip())
        if form is None or int(form[1]) > _MOST_KIB:
            why = "invalid hash; write the line with 'srm-service password'"
            raise ConfigError(f"{where}:{number}: {why}")
        of = frozenset(filter(None, map(str.strip, groups.split(","))))
        found[name.strip()] = UserEntry(hashed, of)
    return found


class UsersFile:
    """The users by name, read again when the file changes.

    At construction a warning is logged if all users of the machine may read or change the file. A
    group may, because the service can run as another user than its operators.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: object = None
        self._users: Mapping[str, UserEntry] = {}
        self.users()
        if path.stat().st_mode & _EVERYBODY:
            open_to = "all users of this machine may read or change it"
            _logger.warning("%s: %s: chmod 600 %s", _KEY, open_to, path)

    def users(self) -> Mapping[str, UserEntry]:
        try:
            stamp = file_stamp(self._path)
            if stamp != self._stamp:
                text = self._path.read_text("utf-8")
                self._users, self._stamp = parse_users(text, str(self._path)), stamp
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not a text in UTF-8"
            raise ConfigError(f"{_KEY}: {self._path}: {why}") from None
        return self._users


class Known:
    """Recent right passwords, so that each needs the slow hash only once per address.

    They are stored as digests with a key of this process; a changed entry invalidates them. They
    count only for their address, because a fast check elsewhere would help guesses.
    """

    def __init__(self) -> None:
        self._key = os.urandom(_KEY_BYTES)
        self._digests: dict[Who, bytes] = {}

    def has(self, who: Who, password: str, entry: UserEntry) -> bool:
        """Return whether this password of this entry was right, in constant time."""
        known = self._digests.get(who, b"")
        return hmac.compare_digest(known, self._digest(password, entry))

    def add(self, who: Who, password: str, entry: UserEntry) -> None:
        self.forget(who)
        self._digests[who] = self._digest(password, entry)
        if len(self._digests) > _MOST_KNOWN:
            del self._digests[next(iter(self._digests))]

    def forget(self, who: Who) -> None:
        self._digests.pop(who, None)

    def _digest(self, password: str, entry: UserEntry) -> bytes:
        return hmac.digest(self._key, f"{entry.hashed}:{password}".encode(), "sha256")
