"""Views of the service as tests prepare them: looks at fakes, no thread that looks again."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache

from srm.config.model import ClusterClients, Config
from srm.config.values import ClientProperties
from srm.domain.metrics import WindowMetric
from srm.domain.names.topics import Flow
from srm.engine.cluster_ports import Stamped
from srm.engine.ports import FlowContext
from srm.engine.status.observing import observe
from srm.service.views.flow_rows import FlowLook, MoveLook, TargetLook
from srm.service.views.series import Series
from srm.service.views.views import Views
from srm_lab.testing.flows import flow_config

NO_CLIENTS = ClusterClients.alike({"bootstrap.servers": "127.0.0.1:1"})


@lru_cache(maxsize=1000)
def _record(window: WindowMetric) -> tuple[bytes, Stamped]:
    return window.key(), Stamped(window.value(), window.end_ms)


class StillWatch:
    """Stands for a watch that has looked once."""

    def __init__(self, look: TargetLook) -> None:
        self.alias = look.alias
        self.look = look
        self.series = Series()
        self.refreshed = 0
        self.thread = threading.Thread()

    def start(self) -> None: ...

    def end(self) -> None: ...

    def refresh(self) -> None:
        self.refreshed += 1

    def add(self, *windows: WindowMetric) -> None:
        """Take windows, as the topic would bring them; looks show the newest of them."""
        self.series.begin()
        for window in windows:
            self.series.take(*_record(window))
        self.series.end()
        flows = {
            flow: replace(look, measured=self.series.latest(flow))
            for flow, look in self.look.flows.items()
        }
        self.look = replace(self.look, flows=flows)


def config_of(*flows: Flow) -> Config:
    """Settings of some flows between clusters that nobody can reach."""
    aliases = tuple(sorted({a for flow in flows for a in (flow.source, flow.target)}))
    secret = ClientProperties({"bootstrap.servers": "127.0.0.1:1", "sasl.password": "hunter2"})
    kinds = ("admin", "consumer", "producer")
    return Config(
        "srm.properties",
        aliases,
        {flow: flow_config(flow) for flow in flows},
        {(alias, kind, None): secret for alias in aliases for kind in kinds},
    )


def look_at(context: FlowContext) -> FlowLook:
    """Look at a flow over fakes once."""
    return FlowLook(context.config.flow, context.config, observe(context), context.now_ms())


def still_views(
    *looks: FlowLook,
    moves: Mapping[str, Iterable[MoveLook]] | None = None,
    config: Config | None = None,
) -> Views:
    """Views of flows that were looked at, and of moves by the cluster that keeps them."""
    targets = {look.flow.target for look in looks} | set(moves or {})
    watches = [
        StillWatch(
            TargetLook(
                alias,
                f"id-of-{alias}",
                {look.flow: look for look in looks if look.flow.target == alias},
                tuple((moves or {}).get(alias, ())),
                looked_ms=max((look.looked_ms for look in looks), default=0),
            )
        )
        for alias in sorted(targets)
    ]
    return Views(config or config_of(*(look.flow for look in looks)), watches)  # type: ignore[arg-type]
