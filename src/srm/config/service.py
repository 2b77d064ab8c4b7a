"""The settings of the SRM service."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """Where the service listens and what it watches; see :mod:`srm.config.service_keys`."""

    host: str = "127.0.0.1"
    port: int = 6670
    root_path: str = ""
    targets: tuple[str, ...] = ()
    refresh: timedelta = timedelta(seconds=5)
