"""Keys of the SRM service; they have no prefix."""

from __future__ import annotations

from typing import Final

from srm.config.keys.access_keys import ACCESS_KEYS, REMOTE_KEYS
from srm.config.keys.config_key import our_file_key

SERVICE_KEYS: Final = (
    our_file_key(
        "service.host",
        "string",
        "127.0.0.1",
        "Address that `srm-service` listens on; `0.0.0.0` for all. An address that other hosts "
        "reach needs `service.auth` (docs/service.md).",
        attribute="host",
    ),
    our_file_key(
        "service.port",
        "number",
        "6670",
        "Port that `srm-service` listens on; 0: any that is free.",
        attribute="port",
    ),
    our_file_key(
        "service.root.path",
        "string",
        "",
        "Path under which a proxy in front of it shows the service, such as `/srm`.",
        attribute="root_path",
    ),
    our_file_key(
        "service.targets",
        "list",
        "",
        "Aliases of the clusters whose incoming flows the service watches; default: the targets "
        "of all enabled flows.",
        attribute="targets",
        synonyms=("streams.replication.manager.service.target.cluster",),
    ),
    our_file_key(
        "service.refresh.seconds",
        "seconds",
        "5",
        "How often the service looks at its clusters, at most: it takes longer pauses where a look "
        "costs much.",
        attribute="refresh",
    ),
    our_file_key(
        "service.prometheus.topics",
        "boolean",
        "true",
        "Export metrics of each topic at `/metrics` (docs/monitoring.md), or of whole flows only.",
        attribute="prometheus_topics",
    ),
    our_file_key(
        "service.prometheus.groups",
        "boolean",
        "true",
        "Export metrics of each consumer group at `/metrics`, or of all groups of a flow only.",
        attribute="prometheus_groups",
    ),
    our_file_key(
        "service.airflow.url",
        "string",
        "",
        "Where Airflow is, such as `https://airflow.example`, for links from the pages of "
        "`srm-service`. Inside Airflow the pages know it.",
        attribute="airflow_url",
    ),
    *ACCESS_KEYS,
    *REMOTE_KEYS,
)
