"""New properties files: commented lines that the loader accepts, without secrets in clear."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from srm.config.keys.keys import PROVIDERS_KEY
from srm.config.loader import build_config, understand
from srm.config.properties import Property, parse_properties, property_line
from srm.config.secrets import is_secret
from srm.errors import UsageError

_REFERENCE: Final = re.compile(r"\$\{(\w+):")
_SASL: Final = ("SASL_PLAINTEXT", "SASL_SSL")
PROTOCOLS: Final = ("PLAINTEXT", "SSL", *_SASL)


@dataclass(frozen=True)
class Section:
    """Lines of a file below their comment."""

    comment: str
    lines: Sequence[tuple[str, str]] = ()

    def text(self) -> str:
        """Return the section as text."""
        head = [f"# {line}".rstrip() for line in self.comment.splitlines()]
        return "\n".join([*head, *(_line(*line) for line in self.lines)]) + "\n"


def _line(key: str, value: str) -> str:
    """Return one line; colons and equals signs of a value need no backslash."""
    line = property_line(key, value, " = ")
    name, separator, rest = line.partition(" = ")
    return name + separator + rest.replace("\\:", ":").replace("\\=", "=")


def render(sections: Iterable[Section], path: str) -> str:
    """Return the text of a file, with secrets as references to the environment.

    Raises:
        ConfigError: the loader would refuse the file.
    """
    found = [
        Section(one.comment, [(key, _hidden(key, value)) for key, value in one.lines])
        for one in sections
    ]
    written = " ".join(value for one in found for _, value in one.lines)
    if providers := sorted({*_REFERENCE.findall(written)}):
        comment = "Secrets are kept elsewhere; set them before the first use."
        found.insert(1, Section(comment, [(PROVIDERS_KEY, ", ".join(providers))]))
    text = "\n".join(one.text() for one in found)
    # A login module is parsed, so only its resolved value can be checked; stores likewise.
    known = (line for line in parse_properties(text) if not _is_login_elsewhere(line))
    build_config(understand(known, path), stores=False)
    return text


def _is_login_elsewhere(line: Property) -> bool:
    return line.key.endswith("sasl.jaas.config") and _REFERENCE.match(line.value) is not None


def _hidden(key: str, value: str) -> str:
    """Return a reference instead of a secret in clear."""
    if not is_secret(key) or _REFERENCE.match(value):
        return value
    return f"${{env:{variable(key)}}}"


def variable(key: str) -> str:
    """Return the environment variable for a key, such as ``P_SASL_PASSWORD``."""
    return re.sub(r"\W+", "_", key).strip("_").upper()


def write_new(path: Path, text: str) -> None:
    """Write a file that does not exist yet; only its owner may read it."""
    try:
        path.touch(mode=0o600, exist_ok=False)
        path.write_text(text, encoding="utf-8")
    except FileExistsError:
        raise UsageError(f"{path} exists: name another file, or remove it first") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror})") from None


def first_file(
    servers: dict[str, str], topics: str, groups: str, protocol: str, mechanism: str
) -> list[Section]:
    """Return the sections of a first file: each cluster copies to the other ones.

    ``topics``, ``groups``: names or patterns, separated by commas.
    ``protocol``: security protocol of all clusters, one of :data:`PROTOCOLS`.
    ``mechanism``: SASL mechanism, for a protocol with SASL.
    """
    if len(servers) < 2:
        raise UsageError("a flow has two clusters: name two aliases at least, such as P,B")
    if protocol not in PROTOCOLS:
        raise UsageError(f"security protocol {protocol}: use {', '.join(PROTOCOLS)}")
    flows = [(f"{a}->{b}.enabled", "true") for a in servers for b in servers if a != b]
    sections = [
        Section("Streams replication manager; keys: docs/configuration.md"),
        Section(
            "Clusters: aliases, then the address of each.",
            [
                ("clusters", ", ".join(servers)),
                *((f"{alias}.bootstrap.servers", value) for alias, value in servers.items()),
            ],
        ),
        Section("Flows: a flow for each direction makes failback possible.", flows),
        Section(
            "Topics and groups that each flow takes: names or regular expressions.\n"
            "srm-control adds to both lists while the replicator runs.",
            [("topics", topics), ("groups", groups)],
        ),
        Section(
            "Progress on copied topics is carried back, so that groups fail back without re-reads.",
            [("reverse.checkpointing.enabled", "true"), ("reverse.checkpointed.topics", ".*")],
        ),
        Section(
            "Replicas of copies and of srm's own topics; 1 for a cluster with one broker.",
            [("replication.factor", "3")],
        ),
    ]
    if protocol != "PLAINTEXT":
        sections.append(_security(servers, protocol, mechanism))
    return sections


def _security(aliases: Iterable[str], protocol: str, mechanism: str) -> Section:
    lines = [("security.protocol", protocol)]
    if protocol in _SASL:
        lines.append(("sasl.mechanism", mechanism))
        for alias in aliases:
            lines += [
                (f"{alias}.sasl.username", f"${{env:{variable(f'{alias}.sasl.username')}}}"),
                (f"{alias}.sasl.password", ""),
            ]
    note = "The system's certificate authorities are trusted; for your own add:\n"
    tls = f"{note}ssl.truststore.type = PEM\nssl.truststore.location = /etc/srm/ca.pem"
    comment = "Security of all clusters; P.security.protocol = ... is for one alone."
    return Section(f"{comment}\n{tls}" if protocol.endswith("SSL") else comment, lines)
