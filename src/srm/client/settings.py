"""An application's properties, and the file that names its clusters."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from srm.config.loader import load_config
from srm.config.model import ClientKind, Config
from srm.errors import ConfigError
from srm.files import is_file, user_path

CLIENT_CONFIG_VARIABLE: Final = "SRM_CLIENT_CONFIG"
CLIENT_FILE: Final = "srm-client.properties"

# Addresses and credentials differ by cluster; the file's values win.
CONNECTION: Final = (
    *("bootstrap.servers", "metadata.broker.list", "security.protocol", "sasl.", "ssl.", "https."),
    *("enable.ssl.", "enable.sasl.", "client.dns.lookup", "broker.address.family"),
)

SERVED: Final = ("error_cb", "stats_cb", "throttle_cb")
"""Callbacks of an application that clients of any cluster serve."""


def load_client_config(given: Config | Path | str | None = None) -> Config:
    """Read a client's file: the given one, else $SRM_CLIENT_CONFIG, else ./srm-client.properties.

    ``srm config client`` writes such a file; a replicator's own file works too. A configuration
    that was read already is returned. ConfigError: the file does not exist or is invalid.
    """
    if isinstance(given, Config):
        return given
    file = user_path(given or os.environ.get(CLIENT_CONFIG_VARIABLE) or CLIENT_FILE)
    if not is_file(file):
        raise ConfigError(
            f"no client file at {file}: write one with srm config client, and name it with "
            f"clusters= or ${CLIENT_CONFIG_VARIABLE}"
        )
    return load_config(file)


@dataclass(frozen=True)
class ClientSettings:
    """The properties of an application's client, for each cluster.

    The file wins for the connection, the application for all else, ``forced`` over both.
    """

    config: Config
    kind: ClientKind
    given: Mapping[str, Any] = field(repr=False)
    defaults: Mapping[str, Any]
    forced: Mapping[str, Any]

    def on(self, cluster: str) -> dict[str, Any]:
        """Return the properties for one cluster."""
        from_file = self.config.client(cluster, self.kind)
        connection = {name: v for name, v in from_file.items() if name.startswith(CONNECTION)}
        return {**self.defaults, **from_file, **self.given, **connection, **self.forced}

    def without_cluster(self) -> dict[str, Any]:
        """Return the properties for a client without a cluster, to validate them."""
        properties = self.on(self.config.clusters[0])
        return {name: v for name, v in properties.items() if not name.startswith(CONNECTION[:2])}


def float_of(timeout: float) -> float:
    """Convert a timeout as confluent-kafka does: it must be a number of seconds, or TypeError."""
    if isinstance(timeout, int | float):
        return float(timeout)
    raise TypeError(f"must be real number, not {type(timeout).__name__}")
