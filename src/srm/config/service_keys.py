"""Keys of the SRM service; they stand without a prefix."""

from __future__ import annotations

from typing import Final

from srm.config.access_keys import ACCESS_KEYS, REMOTE_KEYS
from srm.config.config_key import ConfigKey

SERVICE_KEYS: Final = (
    ConfigKey(
        "service.host",
        "string",
        "127.0.0.1",
        "Address that `srm-service` listens on; `0.0.0.0` for all. One that others reach asks for "
        "`service.auth` (docs/service-access.md).",
        origin="ours",
        scope="file",
        attribute="host",
    ),
    ConfigKey(
        "service.port",
        "number",
        "6670",
        "Port that `srm-service` listens on; 0: any that is free.",
        origin="ours",
        scope="file",
        attribute="port",
    ),
    ConfigKey(
        "service.root.path",
        "string",
        "",
        "Path under which a proxy in front of it shows the service, such as `/srm`.",
        origin="ours",
        scope="file",
        attribute="root_path",
    ),
    ConfigKey(
        "service.targets",
        "list",
        "",
        "Aliases of the clusters whose incoming flows the service watches; default: the targets "
        "of all enabled flows.",
        origin="ours",
        scope="file",
        attribute="targets",
        synonyms=("streams.replication.manager.service.target.cluster",),
    ),
    ConfigKey(
        "service.refresh.seconds",
        "seconds",
        "5",
        "How often the service looks at its clusters, at most: it takes longer pauses where a look "
        "costs much.",
        origin="ours",
        scope="file",
        attribute="refresh",
    ),
    ConfigKey(
        "service.prometheus.topics",
        "boolean",
        "true",
        "Whether `/metrics` tells of each topic (docs/monitoring.md), or of whole flows only.",
        origin="ours",
        scope="file",
        attribute="prometheus_topics",
    ),
    ConfigKey(
        "service.prometheus.groups",
        "boolean",
        "true",
        "Whether `/metrics` tells of each consumer group, or of all groups of a flow only.",
        origin="ours",
        scope="file",
        attribute="prometheus_groups",
    ),
    ConfigKey(
        "service.airflow.url",
        "string",
        "",
        "Where Airflow is, such as `https://airflow.example`, for links from the pages of "
        "`srm-service`. Inside Airflow the pages know it.",
        origin="ours",
        scope="file",
        attribute="airflow_url",
    ),
    *ACCESS_KEYS,
    *REMOTE_KEYS,
)
