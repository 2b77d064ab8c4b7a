"""Logins of clusters from Airflow's connections, by any of its secrets backends.

They are read when a task, a trigger or a page opens a cluster, and never to build a DAG. What tasks
start has no Airflow: it gets them in its environment, so that no file and no command line has them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from airflow.sdk import Connection
from airflow.sdk.log import mask_secret

from srm.config.loader import read_settings
from srm.config.properties import CONNECTIONS_VARIABLE, read_connections_by
from srm.config.values import is_secret
from srm.errors import ConfigError
from srm_airflow.compat import AirflowNotFoundException

_FIELDS: Final = ("host", "login", "password")


class _Unread(dict[str, str]):
    """Fields of a connection that is not read: any may be referred to."""

    def __contains__(self, key: object) -> bool:
        return True

    def __missing__(self, key: str) -> str:
        return "unread"


def unread_connection(name: str) -> Mapping[str, str]:
    """Return a connection of which nothing is known but that it has an address."""
    return _Unread({"bootstrap.servers": f"{name}.invalid:9092"})


def read_connection(name: str) -> Mapping[str, str]:
    """Read a connection by Airflow's API; its secrets are masked in all logs."""
    try:
        found = Connection.get(name)
    except AirflowNotFoundException:
        raise ConfigError(
            f"Airflow has no connection {name}: add one of type kafka, with librdkafka's "
            "properties as extra"
        ) from None
    named = {field: getattr(found, field) for field in _FIELDS}
    fields = {key: str(value) for key, value in {**named, **found.extra_dejson}.items() if value}
    for key, value in fields.items():
        if is_secret(key):
            mask_secret(value)
    return fields


@contextmanager
def given_to_processes(config_path: Path | str) -> Iterator[None]:
    """Give the connections that a properties file names to processes started in the block."""
    read: dict[str, Mapping[str, str]] = {}

    def remember(name: str) -> Mapping[str, str]:
        read[name] = read_connection(name)
        return read[name]

    read_settings(config_path, connections=remember)
    if not read:
        yield
        return
    os.environ[CONNECTIONS_VARIABLE] = json.dumps(read)
    try:
        yield
    finally:
        del os.environ[CONNECTIONS_VARIABLE]


read_connections_by(read_connection)
