"""The file of applications: where the clusters are, and nothing of the operator's.

It has the syntax and the loader of the replicator's file, and what clients need: addresses, what is
public of the security settings, and how copies are named.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import Final

from srm.config.hierarchy import resolve_client
from srm.config.keys.keys import KEYS
from srm.config.loader import SettingsFile, build_config, understand
from srm.config.properties import Property, property_line
from srm.errors import ConfigError

PUBLIC: Final = frozenset(
    [
        "bootstrap.servers",
        "broker.address.family",
        "client.dns.lookup",
        "security.protocol",
        "enable.ssl.certificate.verification",
        "ssl.cipher.suites",
        "ssl.enabled.protocols",
        "ssl.endpoint.identification.algorithm",
        "ssl.truststore.type",
        "ssl.truststore.location",
        "ssl.truststore.certificates",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.crl.location",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.oauthbearer.method",
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.kerberos.service.name",
        "https.ca.location",
        "https.ca.pem",
    ]
)
"""Settings that say how a cluster is reached; who enters, and how it proves that, is not one."""

_ENTRY: Final = ("sasl.", "ssl.")
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
    text += [property_line(key, value, " = ") for key, value in lines.items()]
    left_out = sorted(set(_find_left_out(file)) - set(lines))
    if left_out:
        text.append("\n# Left out, since they are the replicator's own; give the application's:")
        text += [f"# {key} =" for key in left_out]
    return "\n".join(text) + "\n"


_HEAD: Final = """\
# The clusters of applications built on srm.client (docs/clients.md).
# Written by: srm config client, from {path}
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


def _find_left_out(file: SettingsFile) -> Iterable[str]:
    for alias in file.clusters:
        for name in resolve_client(alias, "consumer", file.settings):
            if name.startswith(_ENTRY) and name not in PUBLIC:
                yield f"{alias}.{name}"
