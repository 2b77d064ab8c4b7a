"""Named values for a program about the cluster in force, and their Jinja placeholders.

Each value has one name: ``bootstrap_servers`` in templates and arguments, ``SRM_BOOTSTRAP_SERVERS``
in the environment. Connection settings exist in the notation of librdkafka and of the Java clients,
with dots written as underscores; ``librdkafka`` and ``java`` hold all by their original names.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from javaproperties import join_key_value

from srm.client.membership import subscription
from srm.client.settings import CONNECTION
from srm.config.model import ClientKind, Config
from srm.config.security import java_settings
from srm.config.values import is_secret
from srm.domain.moves.routing import group_subject, topic_subject
from srm.errors import UsageError
from srm.extras import library
from srm.files import read_text, user_file

if TYPE_CHECKING:
    import jinja2
    import jinja2.meta as jinja2_meta
else:
    jinja2 = library("jinja2")
    jinja2_meta = library("jinja2.meta")


PREFIX: Final = "SRM_"
SECRETIVE: Final = frozenset({"librdkafka", "java"})
"""Names of several values together, which may include secrets."""


@dataclass(frozen=True, slots=True)
class ProgramSettings:
    """A program's group, the topics it reads, and those it writes to."""

    group: str = ""
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()

    @property
    def subjects(self) -> tuple[str, ...]:
        groups = (group_subject(self.group),) if self.group else ()
        return (*groups, *map(topic_subject, self.writes))


class Values:
    """The values for one start on the cluster in force, in its ``generation``; 0: no route yet."""

    def __init__(
        self,
        config: Config,
        work: ProgramSettings,
        cluster: str,
        client_id: str,
        generation: int = 0,
    ) -> None:
        kind: ClientKind = "consumer" if work.group else "producer"
        settings = config.client(cluster, kind)
        connection = {name: v for name, v in settings.items() if name.startswith(CONNECTION)}
        java = java_settings(connection, read_text)
        given = {"client.id": client_id} | ({"group.id": work.group} if work.group else {})
        self.java, self.librdkafka = java | given, connection | given
        names = subscription(config, cluster, work.reads) or list(work.writes)
        self._plain: dict[str, Any] = {
            "cluster": cluster,
            "bootstrap_servers": connection["bootstrap.servers"],
            "topics": names,
            "topic_pattern": pattern_of(names),
            "writes": list(work.writes),
            "group": work.group,
            "client_id": client_id,
            "generation": generation,
        }
        self._settings = {n.replace(".", "_"): v for n, v in (java | connection).items()}

    @property
    def secrets(self) -> frozenset[str]:
        found = {n.replace(".", "_") for n in {*self.java, *self.librdkafka} if is_secret(n)}
        return frozenset(found | SECRETIVE if found else found)

    def by_name(self) -> dict[str, Any]:
        together = {"librdkafka": dict(self.librdkafka), "java": dict(self.java)}
        return {**self._settings, **self._plain, **together}

    def environ(self) -> dict[str, str]:
        return {
            f"{PREFIX}{name.upper()}": ",".join(value) if isinstance(value, list) else str(value)
            for name, value in {**self._settings, **self._plain}.items()
        }


def pattern_of(topics: Sequence[str]) -> str:
    """Return a regular expression, for Java and librdkafka, that matches exactly these topics."""
    parts = [name[1:] if name.startswith("^") else name.replace(".", "\\.") for name in topics]
    return f"^({'|'.join(parts)})$" if parts else ""


_OPEN: Final = "{{"


@cache
def _jinja() -> jinja2.Environment:
    made = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    made.filters["properties"] = lambda settings: "\n".join(
        join_key_value(key, value) for key, value in settings.items()
    )
    return made


@dataclass(frozen=True, slots=True)
class Template:
    """A file to write before each start: ``origin`` names its text in messages."""

    origin: str
    text: str
    output: Path

    @classmethod
    def parse(cls, option: str) -> Template:
        """Read the file that an option ``IN:OUT`` names."""
        origin, found, output = option.partition(":")
        if not found or not origin or not output:
            raise UsageError(f"invalid --template {option}; use IN:OUT")
        return cls(origin, read_text(origin), Path(output))

    @classmethod
    def java_properties(cls, output: Path) -> Template:
        return cls("--properties", "{{ java | properties }}\n", output)

    def render(self, values: Values) -> str:
        return _render(self.text, values.by_name(), self.origin)

    def write(self, values: Values) -> None:
        """Write the file atomically; only its owner can read one with a secret."""
        text = self.render(values)
        folder = self.output.absolute().parent
        with user_file(self.output, "written"):
            descriptor, name = tempfile.mkstemp(dir=folder, prefix=f".{self.output.name}.")
            try:
                with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                    if not _names(self.text, self.origin) & values.secrets:
                        os.fchmod(descriptor, 0o644)
                    file.write(text)
                Path(name).replace(self.output)
            except BaseException:
                with suppress(OSError):
                    Path(name).unlink()
                raise


def render_arguments(arguments: Sequence[str], values: Values) -> list[str]:
    """Fill in the placeholders of arguments, but no secret; a list becomes ``a,b``."""
    rendered = []
    for argument in arguments:
        if _OPEN not in argument:
            rendered.append(argument)
            continue
        if secret := sorted(_names(argument, argument) & values.secrets):
            raise UsageError(
                f"{argument}: {secret[0]} is or holds a secret, and all users of the machine can "
                "read arguments: use the environment or --template"
            )
        named = {n: ",".join(v) if isinstance(v, list) else v for n, v in values.by_name().items()}
        rendered.append(_render(argument, named, argument))
    return rendered


def _names(text: str, origin: str) -> set[str]:
    try:
        return jinja2_meta.find_undeclared_variables(_jinja().parse(text))
    except jinja2.TemplateSyntaxError as error:
        raise UsageError(f"{origin}, line {error.lineno}: {error.message}") from None


def _render(text: str, named: Mapping[str, Any], origin: str) -> str:
    try:
        return _jinja().from_string(text).render(named)
    except jinja2.TemplateSyntaxError as error:
        raise UsageError(f"{origin}, line {error.lineno}: {error.message}") from None
    except (jinja2.TemplateError, TypeError, ValueError) as error:
        raise UsageError(f"{origin}: {error}; docs/clients.md lists the valid names") from None
