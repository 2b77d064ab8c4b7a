"""Lookup of the cluster that holds a flow's lists for srm-control: the flow's target."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from srm.config.loader import (
    CONFIG_VARIABLE,
    DEFAULT_FILE,
    find_config,
    load_config,
    target_only,
)
from srm.config.model import Config
from srm.config.properties import read_properties, with_overrides
from srm.config.secrets import shown
from srm.domain.names.topics import Flow
from srm.errors import UsageError

BROKER_DEFAULT: Final = -1
"""Replication factor that lets the broker choose (its default.replication.factor)."""


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """The connection options of srm-control; the ``props`` are texts of the form ``key=value``."""

    config: Path | None = None
    bootstrap_servers: str | None = None
    props: tuple[str, ...] = field(default=(), repr=False)
    producer_props: tuple[str, ...] = field(default=(), repr=False)
    consumer_props: tuple[str, ...] = field(default=(), repr=False)

    def over(self, weaker: ConnectionOptions) -> ConnectionOptions:
        """Put these options over those that were given before the subcommand."""
        return ConnectionOptions(
            self.config or weaker.config,
            self.bootstrap_servers or weaker.bootstrap_servers,
            (*weaker.props, *self.props),
            (*weaker.producer_props, *self.producer_props),
            (*weaker.consumer_props, *self.consumer_props),
        )


@dataclass(frozen=True, slots=True)
class Target:
    """A flow as srm-control knows it; ``configured``: from a whole file, not only an address."""

    config: Config
    flow: Flow
    configured: bool

    @property
    def replication_factor(self) -> int:
        """Replication factor of the control topic, if it has to be made."""
        if not self.configured:
            return BROKER_DEFAULT
        return self.config.flow(self.flow).internal_replication_factor

    @property
    def separator(self) -> str:
        """The separator between alias and topic in the name of a remote topic."""
        return self.config.flow(self.flow).policy.separator


def find_target(source: str | None, target: str | None, options: ConnectionOptions) -> Target:
    """Find out how to reach the flow's target.

    Where an end is not named, it is the one enabled flow that has the other end.

    From the properties file, with the options on top; from ``--bootstrap-servers`` alone where no
    file is named and none that knows the flow is found. A named file without ``clusters`` holds
    client settings, as for other Kafka tools.

    UsageError: neither a file nor an address is there, or the flow is not clear.
    """
    flow = (
        Flow.parse(f"{source}->{target}") if source and target else _only(source, target, options)
    )
    overrides = _overrides(flow, options)
    file = _file(options)
    lines = read_properties(file) if file is not None else ()
    clusters = [line.value for line in lines if line.key == "clusters"]
    if file is not None and clusters and not _is_bypassed(flow, options, clusters[-1]):
        config = load_config(file, overrides)
        config.flow(flow)
        return Target(config, flow, configured=True)
    if options.bootstrap_servers is None:
        raise UsageError(
            f"no address of cluster {flow.target}: give --bootstrap-servers, or a properties file "
            f"with --config, ${CONFIG_VARIABLE} or ./{DEFAULT_FILE}"
        )
    own = () if clusters else lines
    path = str(file) if own else "command line"
    config = target_only(flow, with_overrides(own, overrides), path)
    return Target(config, flow, configured=False)


def _only(source: str | None, target: str | None, options: ConnectionOptions) -> Flow:
    """Return the one enabled flow with the named end."""
    config = load_config(options.config)
    fitting = [
        flow
        for flow in config.flows
        if source in {None, flow.source} and target in {None, flow.target}
    ]
    if len(fitting) != 1:
        enabled = ", ".join(map(str, config.flows)) or "none"
        raise UsageError(
            f"the flow is not clear: {config.path} enables {enabled}", "name --source and --target"
        )
    return fitting[0]


def _file(options: ConnectionOptions) -> Path | None:
    named = options.config is not None or bool(os.environ.get(CONFIG_VARIABLE))
    if named or Path(DEFAULT_FILE).is_file():
        return find_config(options.config)
    return None


def _is_bypassed(flow: Flow, options: ConnectionOptions, clusters: str) -> bool:
    """Return whether a file found by default, not named, is about other clusters."""
    if options.config is not None or options.bootstrap_servers is None:
        return False
    return not {flow.source, flow.target} <= {alias.strip() for alias in clusters.split(",")}


def _overrides(flow: Flow, options: ConnectionOptions) -> Mapping[str, str]:
    alias = flow.target
    overrides = {
        **_settings(f"{alias}.", options.props, "--props"),
        **_settings(f"{alias}.producer.", options.producer_props, "--producer-props"),
        **_settings(f"{alias}.consumer.", options.consumer_props, "--consumer-props"),
    }
    if options.bootstrap_servers is not None:
        overrides[f"{alias}.bootstrap.servers"] = options.bootstrap_servers
    return overrides


def _settings(prefix: str, texts: Iterable[str], option: str) -> dict[str, str]:
    settings = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            said = shown(text, text)
            raise UsageError(f"{option} {said!r} is not of the form key=value")
        settings[prefix + key.strip()] = value.strip()
    return settings
