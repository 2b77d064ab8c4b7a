"""Settings of MirrorMaker 2 on Kafka Connect or Strimzi, as sections of a properties file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from srm.config.keys.keys import find_key
from srm.config.new_file import Section
from srm.config.secrets import shown
from srm.errors import ConfigError

_KINDS: Final = ("MirrorSourceConnector", "MirrorCheckpointConnector", "MirrorHeartbeatConnector")
_STRIMZI: Final = "KafkaMirrorMaker2"
_SIDES: Final = ("source.cluster.", "target.cluster.")
_CERTIFICATES: Final = "/etc/srm/certificates"
_SELECTIONS: Final = {"MirrorSourceConnector": "topics", "MirrorCheckpointConnector": "groups"}
_CONNECTORS: Final = dict(
    zip(_KINDS, ("sourceConnector", "checkpointConnector", "heartbeatConnector"), strict=True)
)
_PATTERNS: Final = {
    "topicsPattern": "topics",
    "topicsExcludePattern": "topics.exclude",
    "groupsPattern": "groups",
    "groupsExcludePattern": "groups.exclude",
}


@dataclass
class _Imported:
    """Lines found so far by key, those without meaning here, and remarks."""

    clusters: dict[str, dict[str, str]] = field(default_factory=dict)
    flows: dict[str, dict[str, str]] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, lines: dict[str, str], prefix: str, key: str, value: object) -> None:
        """Add a line; the first value of a key counts."""
        text = str(value).lower() if isinstance(value, bool) else str(value)
        known = find_key(key)
        if known is not None and not known.effect:
            if text not in known.quiet:
                self.left[f"{prefix}.{key}"] = known.doc
        elif lines.setdefault(key, text) != text:
            used, other = shown(key, lines[key]), shown(key, text)
            self.notes.append(f"{prefix}.{key}: two values, {used} is used, not {other}")


def sections_of(documents: Iterable[Mapping[str, Any]], origin: str) -> list[Section]:
    """Translate decoded connectors, or one Strimzi resource; ignore other documents."""
    found = _Imported()
    known = [*documents]
    resources = [one for one in known if one.get("kind") == _STRIMZI]
    connectors = [*_connectors(known)]
    for resource in resources:
        _add_resource(found, resource.get("spec") or {})
    for kind, config in sorted(connectors, key=lambda one: _KINDS.index(one[0])):
        _add_connector(found, kind, config)
    if not found.flows:
        raise ConfigError(
            f"{origin} has no flow of MirrorMaker 2: neither connectors ({', '.join(_KINDS)}) "
            f"nor a {_STRIMZI} resource"
        )
    return [*_sections(found, origin)]


def _connectors(documents: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for document in documents:
        config = document.get("config") or document
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


def _flow(found: _Imported, flow: str) -> dict[str, str]:
    for alias in flow.split("->"):
        found.clusters.setdefault(alias, {})
    return found.flows.setdefault(flow, {"enabled": "true"})


def _select_all(found: _Imported, flow: str, kind: str) -> None:
    """Write MirrorMaker 2's default, everything, where nothing is selected."""
    key = _SELECTIONS.get(kind)
    if key is not None and key not in found.flows[flow]:
        found.flows[flow][key] = ".*"
        found.notes.append(f"{flow}.{key} = .* is the default of MirrorMaker 2, written out")


def _add_resource(found: _Imported, spec: Mapping[str, Any]) -> None:
    target = spec.get("target") or {}  # of v1; v1beta2 names all in clusters
    for cluster in (target, *(spec.get("clusters") or ())):
        _add_cluster(found, cluster)
    for mirror in spec.get("mirrors") or ():
        _add_cluster(found, mirror.get("source") or {})
        source = mirror.get("sourceCluster") or (mirror.get("source") or {}).get("alias")
        aim = mirror.get("targetCluster") or target.get("alias") or spec.get("connectCluster")
        if not source or not aim:
            raise ConfigError(f"a mirror of the {_STRIMZI} resource lacks its source or target")
        _add_mirror(found, f"{source}->{aim}", mirror)


def _add_mirror(found: _Imported, flow: str, mirror: Mapping[str, Any]) -> None:
    lines = _flow(found, flow)
    for key, ours in _PATTERNS.items():
        if key in mirror:
            found.add(lines, flow, ours, mirror[key])
    for kind, name in _CONNECTORS.items():
        connector = mirror.get(name)
        if connector is None:
            continue
        if "tasksMax" in connector:
            found.add(lines, flow, "tasks.max", connector["tasksMax"])
        for key, value in (connector.get("config") or {}).items():
            found.add(lines, flow, key, value)
        if connector.get("pause") or connector.get("state") in {"paused", "stopped"}:
            lines["enabled"] = "false"
            found.notes.append(f"{flow} is disabled: its {name} is paused")
        for key in sorted({*connector} - {"tasksMax", "config", "pause", "state"}):
            found.left[f"{flow} {name}.{key}"] = "srm has no Connect workers."
        _select_all(found, flow, kind)


def _add_cluster(found: _Imported, cluster: Mapping[str, Any]) -> None:
    alias = cluster.get("alias")
    if not alias:
        return
    lines = found.clusters.setdefault(alias, {})
    if "bootstrapServers" in cluster:
        found.add(lines, alias, "bootstrap.servers", cluster["bootstrapServers"])
    tls, login = cluster.get("tls"), cluster.get("authentication") or {}
    kind = str(login.get("type", ""))
    sasl = kind.startswith("scram") or kind == "plain"
    if tls is not None or sasl:
        protocol = ("SASL_" if sasl else "") + ("SSL" if tls is not None else "PLAINTEXT")
        found.add(lines, alias, "security.protocol", protocol)
    for one in ((tls or {}).get("trustedCertificates") or ())[:1]:
        name = one.get("certificate") or one.get("pattern") or "ca.crt"
        found.add(lines, alias, "ssl.truststore.type", "PEM")
        location = f"{_CERTIFICATES}/{one['secretName']}/{name}"
        found.add(lines, alias, "ssl.truststore.location", location)
        found.notes.append(f"{location}: mount the Secret {one['secretName']} there")
    if sasl:
        secret = login.get("passwordSecret") or {}
        found.add(lines, alias, "sasl.mechanism", kind.upper())
        found.add(lines, alias, "sasl.username", login.get("username", ""))
        found.add(lines, alias, "sasl.password", "")
        found.notes.append(
            f"{alias}.sasl.password: key {secret.get('password')} of the Secret "
            f"{secret.get('secretName')}"
        )
    elif kind == "tls":
        pair = login.get("certificateAndKey") or {}
        folder = f"{_CERTIFICATES}/{pair.get('secretName')}"
        found.add(lines, alias, "ssl.certificate.location", f"{folder}/{pair.get('certificate')}")
        found.add(lines, alias, "ssl.key.location", f"{folder}/{pair.get('key')}")
        found.notes.append(f"{folder}: mount the Secret {pair.get('secretName')} there")
    elif kind:
        found.notes.append(f"{alias}: set the client settings for authentication of type {kind}")
    for key, value in (cluster.get("config") or {}).items():
        found.add(lines, alias, key, value)


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
