"""New properties files: a first one, one of MirrorMaker 2's settings, and that of applications.

The loader accepts each of them. They hold no secrets in clear.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final

from javaproperties import join_key_value

from srm.config.keys import KEYS, PROVIDERS_KEY, find_key
from srm.config.lines import resolve_client, transforms_refusal
from srm.config.loader import SettingsFile, build_config, try_values, understand
from srm.config.properties import (
    Property,
    parse_properties,
    parse_translated,
    read_properties,
)
from srm.config.values import at_place, collect_problems, is_secret, own_problems, shown
from srm.domain.names import java_pattern
from srm.domain.names.policy import split_patterns
from srm.errors import ConfigError, StackError, UsageError
from srm.files import is_file, write_atomically

_REFERENCE: Final = re.compile(r"\$\{(\w+):")
_KEPT: Final = re.compile(r"\$\{(file|directory|env|airflow):")
_SASL: Final = ("SASL_PLAINTEXT", "SASL_SSL")
PROTOCOLS: Final = ("PLAINTEXT", "SSL", *_SASL)
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True)
class Section:
    """Lines of a file below their comment."""

    comment: str
    lines: Sequence[tuple[str, str]] = ()

    def text(self) -> str:
        head = [f"# {line}".rstrip() for line in self.comment.splitlines()]
        return "\n".join([*head, *(_line(*line) for line in self.lines)]) + "\n"


def _line(key: str, value: str) -> str:
    """Return one line; colons and equals signs of a value need no backslash."""
    line = join_key_value(key, value, " = ")
    name, separator, rest = line.partition(" = ")
    return name + separator + rest.replace("\\:", ":").replace("\\=", "=")


def render(sections: Iterable[Section], path: str) -> str:
    """Return the text of a file that the loader accepts, with secrets as references."""
    found = [
        Section(one.comment, [(key, _hidden(key, value)) for key, value in one.lines])
        for one in sections
    ]
    written = " ".join(value for one in found for _, value in one.lines)
    if providers := sorted({*_REFERENCE.findall(written)}):
        comment = "Secrets are kept elsewhere; set them before the first use."
        found.insert(1, Section(comment, [(PROVIDERS_KEY, ", ".join(providers))]))
    text = "\n".join(one.text() for one in found)
    # Only resolved values can be checked; stores likewise. Each cluster needs an address.
    known = (
        replace(line, value=f"{line.key}:1") if _REFERENCE.search(line.value) else line
        for line in parse_translated(text)
        if line.key.endswith("bootstrap.servers") or not _REFERENCE.search(line.value)
    )
    with collect_problems() as problems:
        try_values(understand(known, path))
    own_problems([*dict.fromkeys(map(str, problems))])
    return text


def _hidden(key: str, value: str) -> str:
    if not is_secret(key) or _KEPT.match(value):
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
    """
    if len(servers) < 2:
        raise UsageError("a flow has two clusters: name two aliases at least, such as P,B")
    if protocol not in PROTOCOLS:
        raise UsageError(f"invalid security protocol {protocol}; use {', '.join(PROTOCOLS)}")
    if mechanism not in _MECHANISMS:
        raise UsageError(f"invalid SASL mechanism {mechanism}; use {', '.join(_MECHANISMS)}")
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


PUBLIC: Final = frozenset(
    {
        *("bootstrap.servers", "broker.address.family", "client.dns.lookup", "security.protocol"),
        *("enable.ssl.certificate.verification", "ssl.endpoint.identification.algorithm"),
        *("ssl.cipher.suites", "ssl.enabled.protocols", "ssl.truststore.type"),
        *("ssl.truststore.location", "ssl.truststore.certificates", "ssl.ca.location"),
        *("ssl.ca.pem", "ssl.crl.location", "https.ca.location", "https.ca.pem"),
        *("sasl.mechanism", "sasl.mechanisms", "sasl.oauthbearer.method"),
        *("sasl.oauthbearer.token.endpoint.url", "sasl.kerberos.service.name"),
    }
)
"""Settings that say how a cluster is reached; who enters, and how it proves that, is not one."""

_NAMING: Final = ("replication.policy.separator", "replication.policy.class")
"""Settings that name copies, which consumers read."""


def client_file(file: SettingsFile, added: Mapping[str, str]) -> str:
    """Write the file of applications from the replicator's; ``added`` lines add or replace."""
    lines = dict(_lines(file)) | dict(added)
    read = understand((Property(k, v) for k, v in lines.items()), "the client file")
    if read.clusters != file.clusters:
        raise ConfigError(f"clusters cannot be set: they are those of {file.path}")
    build_config(read, stores=False)
    text = [_HEAD.format(path=file.path)]
    text += [join_key_value(key, value, " = ") for key, value in lines.items()]
    left_out = sorted(
        {
            f"{alias}.{name}"
            for alias in file.clusters
            for name in resolve_client(alias, "consumer", file.settings)
            if name.startswith(("sasl.", "ssl.")) and name not in PUBLIC
        }
        - set(lines)
    )
    if left_out:
        text.append("\n# Left out, since they are the replicator's own; give the application's:")
        text += [f"# {key} =" for key in left_out]
    return "\n".join(text) + "\n"


def write_client_file(path: Path, text: str) -> None:
    """Write the file of applications; one that exists must be such a file, and keeps its keys.

    Only its owner may read it.
    """
    if is_file(path):
        with suppress(OSError):
            if _OWN.encode() not in path.read_bytes():
                raise UsageError(
                    f"{path} exists, and srm config client has not written it: name another file, "
                    "or remove it first"
                )
        kept = {line.key for line in parse_properties(text)}
        lost = [line.key for line in read_properties(path) if line.key not in kept]
        if lost:
            raise UsageError(
                f"{path} has {', '.join(lost)}, which the new file lacks: give them with --set, "
                "or name another file"
            )
    try:
        write_atomically(path, text.encode())
    except StackError as error:
        raise UsageError(str(error)) from None


_OWN: Final = "# Written by: srm config client, from "
_HEAD: Final = f"""\
# The clusters of applications built on srm.client (docs/clients.md).
{_OWN}{{path}}
"""


def _lines(file: SettingsFile) -> Iterator[tuple[str, str]]:
    yield "clusters", ", ".join(file.clusters)
    for alias in file.clusters:
        for name, resolved in resolve_client(alias, "consumer", file.settings).items():
            if name in PUBLIC and resolved.value is not None:
                yield f"{alias}.{name}", resolved.value
    for name, flow in product(_NAMING, file.flows):
        value = file.resolve(name, flow).value or ""
        if value != KEYS[name].default:
            yield f"{flow}.{name}", value


_KINDS: Final = ("MirrorSourceConnector", "MirrorCheckpointConnector", "MirrorHeartbeatConnector")
_STRIMZI: Final = "KafkaMirrorMaker2"
_SIDES: Final = ("source.cluster.", "target.cluster.")
_CERTIFICATES: Final = "/etc/srm/certificates"
_SELECTIONS: Final = {"MirrorSourceConnector": "topics", "MirrorCheckpointConnector": "groups"}
_CONNECTORS: Final = dict(
    zip(_KINDS, ("sourceConnector", "checkpointConnector", "heartbeatConnector"), strict=True)
)
_WORKERS: Final = "mirrormaker2-cluster"
_STRIMZI_NAMES: Final = {
    "bootstrapServers": "bootstrap.servers",
    "groupId": "group.id",
    "offsetStorageTopic": "offset.storage.topic",
    "topicsPattern": "topics",
    "topicsExcludePattern": "topics.exclude",
    "groupsPattern": "groups",
    "groupsExcludePattern": "groups.exclude",
    "topicsBlacklistPattern": "topics.exclude",
    "groupsBlacklistPattern": "groups.exclude",
}


@dataclass
class _Imported:
    """Lines found so far by key, those without meaning here, and remarks."""

    clusters: dict[str, dict[str, str]] = field(default_factory=dict)
    flows: dict[str, dict[str, str]] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    without_transforms: bool = False

    def leave(self, prefix: str, of: Mapping[str, Any], *known: str) -> None:
        left = {*of} - {*known}
        self.left |= {f"{prefix}{key}": "srm has no Connect workers." for key in left}

    def add(self, lines: dict[str, str], prefix: str, key: str, value: object) -> None:
        """Add a line; the first value of a key counts, and None is none."""
        if value is None:
            return
        if isinstance(value, Mapping | list):
            raise ConfigError(f"{prefix}.{key} is not a single value")
        text = str(value).lower() if isinstance(value, bool) else str(value)
        known = find_key(key)
        if known is not None and not known.effect:
            if text not in known.quiet:
                self.left[f"{prefix}.{key}"] = known.doc
        elif lines.setdefault(key, text) != text:
            used, other = shown(key, lines[key]), shown(key, text)
            self.notes.append(f"{prefix}.{key}: two values, {used} is used, not {other}")


def sections_of(
    documents: Iterable[Mapping[str, Any]], origin: str, *, without_transforms: bool = False
) -> list[Section]:
    """Translate decoded connectors, or one Strimzi resource; ignore other documents.

    ``without_transforms``: leave out transforms that change more than a prefix of topics.
    """
    found = _Imported(without_transforms=without_transforms)
    known = [*documents]
    resources = [one for one in known if one.get("kind") == _STRIMZI]
    with at_place(origin):
        connectors = [*_connectors(known)]
        for resource in resources:
            _add_resource(found, _part(resource, "spec"))
        for kind, config in sorted(connectors, key=lambda one: _KINDS.index(one[0])):
            _add_connector(found, kind, config)
    if not found.flows:
        raise ConfigError(
            f"{origin} has no flow of MirrorMaker 2: neither connectors ({', '.join(_KINDS)}) "
            f"nor a {_STRIMZI} resource; a properties file needs no import"
        )
    return [*_sections(found, origin)]


def _part(of: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return an object of a document, an empty one where there is none."""
    found = of.get(name) or {}
    if not isinstance(found, Mapping):
        raise ConfigError(f"{name} is not an object")
    return found


def _parts(of: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    found = of.get(name) or []
    if not isinstance(found, list) or not all(isinstance(one, Mapping) for one in found):
        raise ConfigError(f"{name} is not a list of objects")
    return found


def _connectors(documents: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for document in documents:
        config = _part(document, "config") or document
        kind = str(config.get("connector.class", "")).rpartition(".")[2]
        if kind in _KINDS:
            yield kind, config


def _add_connector(found: _Imported, kind: str, config: Mapping[str, Any]) -> None:
    ends = [str(config.get(f"{side}alias", "")) for side in _SIDES]
    if not all(ends):
        raise ConfigError(f"a {kind} has no source.cluster.alias or no target.cluster.alias")
    flow = "->".join(ends)
    lines = _flow(found, flow)
    for key, value in config.items():
        side = next((side for side in _SIDES if key.startswith(side)), None)
        if side is None:
            found.add(lines, flow, key, value)
        elif key != f"{side}alias":
            alias = ends[_SIDES.index(side)]
            found.add(found.clusters.setdefault(alias, {}), alias, key.removeprefix(side), value)
    _select_all(found, flow, kind)
    _add_transforms(found, flow, config)


def _flow(found: _Imported, flow: str) -> dict[str, str]:
    for alias in flow.split("->"):
        found.clusters.setdefault(alias, {})
    return found.flows.setdefault(flow, {"enabled": "true"})


def _select_all(found: _Imported, flow: str, kind: str) -> None:
    key = _SELECTIONS.get(kind)
    if key is not None and key not in found.flows[flow]:
        found.flows[flow][key] = ".*"
        found.notes.append(f"{flow}.{key} = .* is the default of MirrorMaker 2, written out")


def _add_resource(found: _Imported, spec: Mapping[str, Any]) -> None:
    found.leave("", spec, "target", "clusters", "mirrors", "connectCluster")
    target = _part(spec, "target")  # of v1; v1beta2 names all in clusters
    for cluster in (target, *_parts(spec, "clusters")):
        _add_cluster(found, cluster)
    for mirror in _parts(spec, "mirrors"):
        _add_cluster(found, _part(mirror, "source"))
        source = mirror.get("sourceCluster") or _part(mirror, "source").get("alias")
        aim = mirror.get("targetCluster") or target.get("alias") or spec.get("connectCluster")
        if not source or not aim:
            raise ConfigError(f"a mirror of the {_STRIMZI} resource lacks its source or target")
        workers = {"group.id": _WORKERS, "offset.storage.topic": f"{_WORKERS}-offsets"}
        found.clusters[aim] = workers | found.clusters.get(aim, {})
        _add_mirror(found, f"{source}->{aim}", mirror)


def _add_mirror(found: _Imported, flow: str, mirror: Mapping[str, Any]) -> None:
    lines = _flow(found, flow)
    for key, ours in _STRIMZI_NAMES.items():
        found.add(lines, flow, ours, mirror.get(key))
    for kind, name in _CONNECTORS.items():
        if mirror.get(name) is None:
            continue
        connector = _part(mirror, name)
        if "tasksMax" in connector:
            found.add(lines, flow, "tasks.max", connector["tasksMax"])
        for key, value in _part(connector, "config").items():
            found.add(lines, flow, key, value)
        if connector.get("pause") or connector.get("state") in {"paused", "stopped"}:
            lines["enabled"] = "false"
            found.notes.append(f"{flow} is disabled: its {name} is paused")
        found.leave(f"{flow} {name}.", connector, "tasksMax", "config", "pause", "state")
        _select_all(found, flow, kind)
        _add_transforms(found, flow, _part(connector, "config"))


_ROUTER: Final = "org.apache.kafka.connect.transforms.RegexRouter"
_REGEX: Final = re.compile(r"\^?(.*?)(?:\((?:\?<\w+>)?\.[*+]\)|(\.[*+]))\$?")
_REPLACEMENT: Final = re.compile(r"([\w.-]*)(?:\$([01])|\$\{\w+\})")


def _add_transforms(found: _Imported, flow: str, config: Mapping[str, Any]) -> None:
    """Make a policy of transforms that change a prefix; refuse others, and lone predicates."""
    kind = "transforms" if config.get("transforms") else "predicates"
    names, key = str(config.get(kind) or ""), f"{flow}.{kind}"
    if not names:
        return
    lines, source = found.flows[flow], flow.partition("->")[0]
    java = lines.get("replication.policy.class", KEYS["replication.policy.class"].default or "")
    separator = lines.get("replication.policy.separator", ".")
    of_default = java.endswith(".DefaultReplicationPolicy")
    prefix: str | None = f"{source}{separator}" if of_default else ""
    for name in split_patterns(names):
        of = {key: str(config.get(f"transforms.{name}.{key}", "")) for key in _OF_ROUTER}
        prefix = None if prefix is None else _new_prefix(prefix, of)
    if not of_default and not java.endswith(".IdentityReplicationPolicy"):
        prefix = None
    after = (prefix or "").removeprefix(source)
    if prefix == "":
        lines["replication.policy.class"] = "IdentityReplicationPolicy"
    elif prefix == source + after and re.fullmatch(r"[._-]+", after):
        lines["replication.policy.class"] = "DefaultReplicationPolicy"
        lines["replication.policy.separator"] = after
    elif not found.without_transforms:
        instead = "use srm config import --without-transforms"
        raise ConfigError(f"{key}: {transforms_refusal(names, instead)}")
    else:
        what = "predicates" if kind == "predicates" else "copies are not renamed or changed by"
        found.notes.append(f"{key}: left out: {what} {names}")
        return
    found.left = {one: why for one, why in found.left.items() if not one.startswith(key)}
    found.notes.append(f"{key}: {names} became replication.policy.class")


_OF_ROUTER: Final = ("type", "regex", "replacement", "predicate")


def _new_prefix(prefix: str, of: Mapping[str, str]) -> str | None:
    """Return what a RegexRouter makes of a prefix, None where it does something else."""
    regex = _REGEX.fullmatch(of["regex"])
    replacement = _REPLACEMENT.fullmatch(of["replacement"])
    if of["type"] != _ROUTER or of["predicate"] or regex is None or replacement is None:
        return None
    before = java_pattern.parse(regex[1])
    whole = replacement[2] == "0"
    if not before.is_literal or (regex[2] and not whole) or before.prefix not in {"", prefix}:
        return None
    rest = prefix if whole else prefix.removeprefix(before.prefix)
    return replacement[1] + rest


def _add_cluster(found: _Imported, cluster: Mapping[str, Any]) -> None:
    alias = str(cluster.get("alias") or "")
    if not alias:
        return
    add = partial(found.add, found.clusters.setdefault(alias, {}), alias)
    for key, ours in _STRIMZI_NAMES.items():
        add(ours, cluster.get(key))
    found.leave(f"{alias}.", cluster, *_STRIMZI_NAMES, "alias", "tls", "authentication", "config")
    tls, login = cluster.get("tls"), _part(cluster, "authentication")
    kind = str(login.get("type", ""))
    sasl = kind.startswith("scram") or kind == "plain" or login.get("sasl") is True
    if tls is not None or sasl:
        protocol = ("SASL_" if sasl else "") + ("SSL" if tls is not None else "PLAINTEXT")
        add("security.protocol", protocol)
    trusted = _parts(_part(cluster, "tls"), "trustedCertificates")
    if trusted:
        folders = [f"{_CERTIFICATES}/{one.get('secretName')}" for one in trusted]
        names = [one.get("certificate") or one.get("pattern") or "ca.crt" for one in trusted]
        add("ssl.truststore.type", "PEM")
        add("ssl.truststore.location", ",".join(map("{}/{}".format, folders, names)))
        for folder in dict.fromkeys(folders):
            of = folder.rpartition("/")[2]
            found.notes.append(f"{folder}: mount the Secret {of} there")
    if secret := _part(login, "passwordSecret"):
        add("sasl.mechanism", kind.upper())
        add("sasl.username", login.get("username", ""))
        add("sasl.password", "")
        found.notes.append(
            f"{alias}.sasl.password: key {secret.get('password')} of the Secret "
            f"{secret.get('secretName')}"
        )
    elif kind == "tls":
        pair = _part(login, "certificateAndKey")
        folder = f"{_CERTIFICATES}/{pair.get('secretName')}"
        add("ssl.certificate.location", f"{folder}/{pair.get('certificate')}")
        add("ssl.key.location", f"{folder}/{pair.get('key')}")
        found.notes.append(f"{folder}: mount the Secret {pair.get('secretName')} there")
    elif kind and "config" not in login:
        found.notes.append(f"{alias}: set the client settings for authentication of type {kind}")
    for key, value in (*_part(login, "config").items(), *_part(cluster, "config").items()):
        add(key, value)


def _sections(found: _Imported, origin: str) -> Iterator[Section]:
    yield Section(f"Imported from {origin}; keys: docs/configuration.md")
    yield Section("Clusters.", [("clusters", ", ".join(found.clusters))])
    for kind, scopes in (("Cluster", found.clusters), ("Flow", found.flows)):
        for scope, lines in scopes.items():
            rows = [(f"{scope}.{key}", value) for key, value in lines.items()]
            yield Section(f"{kind} {scope}.", rows)
    if found.notes:
        yield Section("To check:\n" + "\n".join(f"- {note}" for note in found.notes))
    if found.left:
        left = "\n".join(f"- {key}: {reason}" for key, reason in sorted(found.left.items()))
        yield Section(f"Left out, without meaning here:\n{left}")
