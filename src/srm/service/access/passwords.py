"""Login by name and password, from a file of users: slow for guesses, fast for repeated logins."""

from __future__ import annotations

import base64
import binascii
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
from typing import Final, Self

from anyio.to_thread import run_sync
from cryptography.exceptions import InvalidKey
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt
from fastapi import Depends, HTTPException, Request
from fastapi.security import HTTPBasic, HTTPBasicCredentials
from fastapi.security.utils import get_authorization_scheme_param

from srm.config.model import AccessSettings
from srm.errors import ConfigError, UnavailableError, UsageError
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
        self._unknown_user = UserEntry(PasswordHash.of("nobody"))
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
        hashed = (entry or self._unknown_user).password
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
        access.audit.warning("login of %r from %s refused%s", who[1], who[0], why)


def _too_many(why: str, retry_after_s: int) -> HTTPException:
    return HTTPException(429, why, {"Retry-After": str(retry_after_s)})


_KEY: Final = "service.users.location"
_LOG_N, _R, _P = 15, 8, 3
"""32 MiB and 0.2 s per guess, as OWASP's Password Storage Cheat Sheet advises for scrypt."""
_SALT_BYTES: Final = 16
_KEY_BYTES: Final = 32
_HASH: Final = re.compile(r"\$scrypt\$ln=(\d{1,2}),r=(\d{1,2}),p=(\d{1,2})\$([\w+/=]+)\$([\w+/=]+)")
_MOST_LOG_N: Final = 20
_NAME: Final = re.compile(r"[^:\s#][^:\n]*")
_MOST_KNOWN: Final = 10_000
_EVERYBODY: Final = stat.S_IROTH | stat.S_IWOTH

Who = tuple[str, str]
"""An address, and the user name in its request."""


@dataclass(frozen=True, slots=True)
class PasswordHash:
    """A hash in the form of the file: ``$scrypt$ln=15,r=8,p=3$SALT$KEY``, both in Base64."""

    log_n: int
    r: int
    p: int
    salt: bytes
    key: bytes

    @classmethod
    def of(cls, password: str) -> Self:
        salt = os.urandom(_SALT_BYTES)
        return cls(_LOG_N, _R, _P, salt, _scrypt(_LOG_N, _R, _P, salt).derive(password.encode()))

    @classmethod
    def parse(cls, text: str) -> Self:
        found = _HASH.fullmatch(text)
        if found is None or int(found[1]) > _MOST_LOG_N:
            raise ValueError("invalid hash; write the line with 'srm-service password'")
        try:
            salt, key = (base64.b64decode(part, validate=True) for part in found.groups()[3:])
        except binascii.Error:
            raise ValueError("the Base64 of the hash is damaged") from None
        if len(key) != _KEY_BYTES:
            raise ValueError("the key of the hash is truncated")
        return cls(int(found[1]), int(found[2]), int(found[3]), salt, key)

    def text(self) -> str:
        salt, key = (base64.b64encode(part).decode() for part in (self.salt, self.key))
        return f"$scrypt$ln={self.log_n},r={self.r},p={self.p}${salt}${key}"

    def matches(self, password: str) -> bool:
        """Return whether the hash is of this password, in constant time."""
        try:
            _scrypt(self.log_n, self.r, self.p, self.salt).verify(password.encode(), self.key)
        except InvalidKey:
            return False
        return True


def _scrypt(log_n: int, r: int, p: int, salt: bytes) -> Scrypt:
    return Scrypt(salt=salt, length=_KEY_BYTES, n=1 << log_n, r=r, p=p)


@dataclass(frozen=True, slots=True)
class UserEntry:
    """One user: the hash of the password, and the groups."""

    password: PasswordHash
    groups: frozenset[str] = frozenset()


def line(name: str, password: str, groups: tuple[str, ...] = ()) -> str:
    """Return a line of the file: ``NAME:HASH`` or ``NAME:HASH:GROUP,GROUP``."""
    if not _NAME.fullmatch(name) or name != name.strip():
        raise UsageError(f"{name!r} is not a valid user name; omit colons and outer blanks")
    if not password:
        raise UsageError(f"the password of {name} is empty; nothing was written")
    entry = f"{name}:{PasswordHash.of(password).text()}"
    return f"{entry}:{','.join(groups)}" if groups else entry


def parse_users(text: str, where: str) -> dict[str, UserEntry]:
    """Parse the lines of the file; empty ones and those that begin with ``#`` are skipped."""
    found: dict[str, UserEntry] = {}
    for number, written in enumerate(text.splitlines(), 1):
        if not written.strip() or written.startswith("#"):
            continue
        name, _, rest = written.partition(":")
        hashed, _, groups = rest.partition(":")
        try:
            of = frozenset(filter(None, map(str.strip, groups.split(","))))
            entry = UserEntry(PasswordHash.parse(hashed.strip()), of)
        except ValueError as error:
            raise ConfigError(f"{where}:{number}: {error}") from None
        found[name.strip()] = entry
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
            status = self._path.stat()
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
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
        return hmac.digest(self._key, entry.password.key + password.encode(), "sha256")
