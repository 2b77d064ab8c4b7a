"""Secret settings: the list of their keys, and the type that carries them and shows none.

:class:`ClientProperties`, the lines of a properties file and ``srm config explain`` all use the
one list, by :func:`is_secret`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

HIDDEN: Final = "[hidden]"
_SECRET: Final = (
    "password",
    "passphrase",
    "secret",
    "jaas",
    "key.pem",
    "keystore.key",
    "oauthbearer.config",
    "webhook.url",
    "notifier.arguments",
)


def is_secret(key: str) -> bool:
    """Return whether the value of a key, with or without its prefixes, is secret."""
    return any(part in key for part in _SECRET)


def shown(key: str, value: str) -> str:
    """Return a value as it may be shown."""
    return HIDDEN if is_secret(key) else value


def without_login(address: str) -> str:
    """Return an address as it may be shown: without the ``user:password@`` that URLs have."""
    _, at, rest = address.rpartition("@")
    return f"{HIDDEN}@{rest}" if at else address


class Secret:
    """A text that no log, error, report or JSON shows; :meth:`reveal` returns it."""

    __slots__ = ("_text",)

    def __init__(self, text: str = "") -> None:
        self._text = text

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return HIDDEN if self._text else ""

    def reveal(self) -> str:
        """Return the text."""
        return self._text


class ClientProperties(Mapping[str, str]):
    """librdkafka properties of one client, immutable; as text, secrets are hidden.

    It is not a dict, so that no library writes it out as JSON. Code that needs the values reads
    ``properties[key]``, or passes ``dict(properties)`` to a client library.
    """

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)

    def __getitem__(self, key: str) -> str:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr({key: shown(key, value) for key, value in self._values.items()})
