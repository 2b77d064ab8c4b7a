"""Named values for a program about the cluster in force.

Each value has one name: ``bootstrap_servers`` in templates and arguments, ``SRM_BOOTSTRAP_SERVERS``
in the environment. Connection settings exist in the notation of librdkafka and of the Java clients,
with dots written as underscores; ``librdkafka`` and ``java`` hold all by their original names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from srm.client.routing.membership import subscription
from srm.client.settings import CONNECTION
from srm.config.java_notation import java_settings
from srm.config.model import ClientKind, Config
from srm.config.secrets import is_secret
from srm.domain.moves.routing import group_subject, topic_subject
from srm.domain.names.topics import Flow
from srm.errors import ConfigError

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
        """Subjects of the routes it follows."""
        groups = (group_subject(self.group),) if self.group else ()
        return (*groups, *map(topic_subject, self.writes))


class Values:
    """The values for one start on the cluster in force, in its ``generation``; 0: no route yet.

    ``client_id`` is for the program's clients, or the prefix of their ids.
    """

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
        java = java_settings(connection, _read_file)
        given = {"client.id": client_id} | ({"group.id": work.group} if work.group else {})
        self.java, self.librdkafka = java | given, connection | given
        names = topics_on(config, cluster, work.reads) or list(work.writes)
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
        self._settings = {
            name.replace(".", "_"): value for name, value in (java | connection).items()
        }

    @property
    def secrets(self) -> frozenset[str]:
        """Names of values that are or hold a secret."""
        found = {n.replace(".", "_") for n in {*self.java, *self.librdkafka} if is_secret(n)}
        return frozenset(found | SECRETIVE if found else found)

    def by_name(self) -> dict[str, Any]:
        """Return all values by their names in templates."""
        together = {"librdkafka": dict(self.librdkafka), "java": dict(self.java)}
        return {**self._settings, **self._plain, **together}

    def environ(self) -> dict[str, str]:
        """Return all single values by their names in the environment."""
        return {
            f"{PREFIX}{name.upper()}": ",".join(value) if isinstance(value, list) else str(value)
            for name, value in {**self._settings, **self._plain}.items()
        }


def topics_on(config: Config, cluster: str, topics: Sequence[str]) -> list[str]:
    """Return the names of topics and their copies on a cluster; ``^`` begins a pattern."""
    others = {
        other: config.flow(Flow(other, cluster)).names.remote
        for other in config.clusters
        if other != cluster
    }
    return subscription(topics, cluster, others)


def pattern_of(topics: Sequence[str]) -> str:
    """Return a regular expression, for Java and librdkafka, that matches exactly these topics."""
    parts = [name[1:] if name.startswith("^") else name.replace(".", "\\.") for name in topics]
    return f"^({'|'.join(parts)})$" if parts else ""


def _read_file(path: str) -> str:
    try:
        return Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read ({error})") from None
