"""The file of users with their hashed passwords."""

from __future__ import annotations

import base64
import binascii
import hmac
import logging
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from cryptography.exceptions import InvalidKey
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from srm.errors import ConfigError, UsageError

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
_logger = logging.getLogger(__name__)

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
        """Hash a password with a new salt."""
        salt = os.urandom(_SALT_BYTES)
        key = _scrypt(_LOG_N, _R, _P, salt).derive(password.encode())
        return cls(_LOG_N, _R, _P, salt, key)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the form of :meth:`text`.

        Raises:
            ValueError: the text has another form.
        """
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
        """Return the hash in the form of the file."""
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
    """Return a line of the file: ``NAME:HASH`` or ``NAME:HASH:GROUP,GROUP``.

    Raises:
        UsageError: the name is invalid, or the password is empty.
    """
    if not _NAME.fullmatch(name) or name != name.strip():
        raise UsageError(f"{name!r} cannot be the name of a user; omit colons and outer blanks")
    if not password:
        raise UsageError(f"the password of {name} is empty; nothing was written")
    entry = f"{name}:{PasswordHash.of(password).text()}"
    return f"{entry}:{','.join(groups)}" if groups else entry


def parse_users(text: str, where: str) -> dict[str, UserEntry]:
    """Parse the lines of the file; empty ones and those that begin with ``#`` are skipped.

    Raises:
        ConfigError: a line is invalid; the message has its number but not its text.
    """
    found: dict[str, UserEntry] = {}
    for number, written in enumerate(text.splitlines(), 1):
        if not written.strip() or written.startswith("#"):
            continue
        name, _, rest = written.partition(":")
        hashed, _, groups = rest.partition(":")
        try:
            entry = UserEntry(PasswordHash.parse(hashed.strip()), _groups(groups))
        except ValueError as error:
            raise ConfigError(f"{where}:{number}: {error}") from None
        found[name.strip()] = entry
    return found


def _groups(text: str) -> frozenset[str]:
    return frozenset(group for group in (each.strip() for each in text.split(",")) if group)


class UsersFile:
    """The users by name, read again when the file changes.

    At construction a warning is logged if all users of the machine may read or change the file. A
    group may, because the service can run as another user than its operators.

    Raises:
        ConfigError: at construction, the file cannot be read or parsed.
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
        """Return the current users of the file.

        Raises:
            ConfigError: the file cannot be read or parsed.
        """
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
        """Store a right password and drop the oldest beyond the limit."""
        self.forget(who)
        self._digests[who] = self._digest(password, entry)
        if len(self._digests) > _MOST_KNOWN:
            del self._digests[next(iter(self._digests))]

    def forget(self, who: Who) -> None:
        """Forget the right password of a user at an address."""
        self._digests.pop(who, None)

    def _digest(self, password: str, entry: UserEntry) -> bytes:
        return hmac.digest(self._key, entry.password.key + password.encode(), "sha256")
