"""Values of settings: their types, classes that they name, and secrets, which nothing shows."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from itertools import permutations
from typing import Any, Final

from srm.config.keys import ConfigKey, ValueKind
from srm.domain.names import internal_topics, policy
from srm.domain.text.amount import reasons_text
from srm.errors import ConfigError, SrmError, UsageError

HIDDEN: Final = "[hidden]"
_SHOWN: Final = 3
_SECRET: Final = (
    *("password", "passphrase", "secret", "jaas", "key.pem", "keystore.key"),
    *("oauthbearer.config", "webhook.url", "notifier.arguments"),
)


def is_secret(key: str) -> bool:
    """Return whether the value of a key, with any prefixes, is secret."""
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
        return self._text


class ClientProperties(Mapping[str, str]):
    """librdkafka properties of one client; as text, secrets are hidden.

    It is not a dict, so that no library writes it out as JSON.
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


NEVER: Final = timedelta(days=36500)
"""Interval of something that is switched off (100 years: every timer can take it)."""

_CRON_UNITS: Final = (
    *("[0-5]?[0-9]", "[01]?[0-9]|2[0-3]", "[?Ll]|0?[1-9]|[12][0-9]|3[01]"),
    *("0?[1-9]|1[0-2]|[A-Za-z]{3}", r"\?|L?0?[0-7](?:#[1-5])?|[A-Za-z]{3}(?:#[1-5])?"),
)
_CRON_ENTRIES: Final = (rf"(?:\*|(?:{n})(?:-(?:{n}))?)(?:/0*[1-9][0-9]*)?" for n in _CRON_UNITS)
_CRON: Final = re.compile(
    "@(?:hourly|daily|weekly|monthly|yearly)|" + " ".join(rf"{e}(?:,{e})*" for e in _CRON_ENTRIES)
)
"""What Airflow takes: one schedule that it refuses hides the DAGs of every flow."""

Value = bool | int | str | timedelta | tuple[str, ...]


def parse_value(key: ConfigKey, text: str) -> Value:
    """Turn the text of a value into the key's type."""
    if key.kind == "choice":
        return _choice(text, key.choices)
    if key.kind == "number":
        return _whole(text, *map(int, key.choices[0].split("-")))
    value = _PARSERS[key.kind](text)
    if key.choices and isinstance(value, tuple):
        return tuple(_choice(one, key.choices) for one in value)
    return value


_problems: ContextVar[list[SrmError] | None] = ContextVar("srm_config_problems", default=None)


@contextmanager
def collect_problems() -> Iterator[list[SrmError]]:
    """Collect the problems of the body's parts, see :func:`own_problem`."""
    found = list[SrmError]()
    token = _problems.set(found)
    try:
        yield found
    finally:
        _problems.reset(token)


class _Part:
    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        found = _problems.get()
        if found is None or not isinstance(error, SrmError):
            return False
        found.append(error)
        return True


def own_problem() -> _Part:
    """Enclose a part whose problem hides none of the next parts: it is collected, else raised."""
    return _Part()


def own_problems(texts: Sequence[str]) -> None:
    """Collect several problems; else the error of the first ones is raised."""
    if (found := _problems.get()) is not None:
        found += map(ConfigError, texts)
    elif texts:
        raise ConfigError(reasons_text(texts, _SHOWN))


@contextmanager
def at_place(*place: object) -> Iterator[None]:
    """Begin the message of an error, and of problems collected in it, with a setting's place."""
    found = _problems.get()
    before = len(found or ())

    def with_place(error: SrmError) -> SrmError:
        return ConfigError(": ".join(map(str, (*place, error))))

    try:
        yield
    except (ConfigError, UsageError) as error:
        raise with_place(error) from None
    finally:
        if found is not None:
            found[before:] = map(with_place, found[before:])


def _whole(text: str, least: int, most: int) -> int:
    if not text.isdecimal() or not least <= int(text) <= most:
        raise ConfigError(f"{text!r} is not a whole number from {least} to {most}")
    return int(text)


def _seconds(text: str) -> timedelta:
    try:
        interval = timedelta(seconds=float(text))
    except (ValueError, OverflowError):
        raise ConfigError(f"{text!r} is not a number of seconds") from None
    if interval <= timedelta(0):
        raise ConfigError(f"{text!r} is not a number of seconds above 0")
    return min(interval, NEVER)


def _patterns(text: str) -> tuple[str, ...]:
    patterns = policy.split_patterns(text)
    own_problems([*policy.pattern_problems(patterns)])
    return patterns


def _cron(text: str) -> str:
    schedule = " ".join(text.split())
    if not _CRON.fullmatch(schedule):
        raise ConfigError(
            f"{text!r} is not a cron expression: give minute, hour, day, month and weekday, such "
            "as 0 6 * * 1, or @daily"
        )
    return schedule


def _choice(text: str, choices: tuple[str, ...]) -> str:
    if text.lower() not in choices:
        raise ConfigError(f"{text!r} is not one of {', '.join(choices)}")
    return text.lower()


_PARSERS: Final[dict[ValueKind, Callable[[str], Value]]] = {
    "boolean": lambda text: _choice(text, ("true", "false")) == "true",
    "replication factor": lambda text: -1 if text == "-1" else _whole(text, 1, 10_000),
    "seconds": _seconds,
    "list": policy.split_patterns,
    "regexes": _patterns,
    "string": str,
    "cron": _cron,
}

_OF_JAVA: Final = ("org.apache.kafka.connect.mirror.", "com.cloudera.")
"""Packages of MirrorMaker 2 and of Streams Replication Manager."""


def policy_of(
    name: str, source_alias: str, separator: str, clusters: Iterable[str] = ()
) -> policy.ReplicationPolicy:
    """Return a policy by ``module:Class``, or as in MirrorMaker 2 by Java name or class alone."""
    known = _plain_name(name)
    prefixes = {alias: f"{alias}{separator}" for alias in clusters}
    aliases = tuple(alias for alias, prefix in prefixes.items() if separator in prefix[:-1])
    if known == "DefaultReplicationPolicy":
        _check_prefixes(prefixes, "topic", ".*")
        return policy.DefaultReplicationPolicy(separator, aliases=aliases)
    if known == "IdentityReplicationPolicy":
        hops = "|".join(map(re.escape, prefixes.values()))
        _check_prefixes(prefixes, internal_topics.HEARTBEATS, f"(?:{hops})+")
        return policy.IdentityReplicationPolicy(separator, source_alias, aliases=aliases)
    own = _load(name, policy.ReplicationPolicy)
    try:
        made: policy.ReplicationPolicy = own(source_alias, separator)
        policy.check_policy(made, ["topic"], source_alias)
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(
            f"{name}({source_alias!r}, {separator!r}) failed: {error!r}; flows give it each topic "
            "of both clusters"
        ) from error
    return made


def _check_prefixes(prefixes: Mapping[str, str], name: str, between: str) -> None:
    for one, other in permutations(prefixes, 2):
        rest = prefixes[other].removeprefix(prefixes[one])
        if rest != prefixes[other] and re.fullmatch(between, rest):
            raise ConfigError(
                f"{prefixes[other]}{name} may be the copy of {name} of {other}, or of "
                f"{rest}{name} of {one}; set another replication.policy.separator"
            )


def filter_of(name: str, default: str) -> type[policy.NameFilter]:
    """Return a class of filters; ``default`` is the Java name of MirrorMaker 2's."""
    if _plain_name(name) == default.rpartition(".")[2]:
        return policy.NameFilter
    return _load(name, policy.NameFilter)  # type: ignore[no-any-return]


def _plain_name(name: str) -> str:
    package, _, known = name.rpartition(".")
    return known if not package or name.startswith(_OF_JAVA) else ""


def _load(name: str, of: type) -> Any:
    module, colon, attribute = name.partition(":")
    if not colon:
        raise ConfigError(
            f"{name} is a Java class that cannot be used here; write it in Python and name it "
            f"module:Class (docs/configuration.md), or remove the line"
        )
    try:
        found = getattr(importlib.import_module(module), attribute)
    except Exception as error:
        raise ConfigError(
            f"{name} cannot be imported: {error!r}; put its module on PYTHONPATH, on the machines "
            "of Spark, too"
        ) from error
    if not (isinstance(found, type) and issubclass(found, of)):
        raise ConfigError(f"{name} is not a class derived from {of.__module__}.{of.__qualname__}")
    return found
