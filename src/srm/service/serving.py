"""Standalone service: application, access and TLS for uvicorn."""

from __future__ import annotations

from dataclasses import replace

import uvicorn

from srm.config.model import Config
from srm.service.access.logins import access_of
from srm.service.access.tls import server_options
from srm.service.app import create_app
from srm.service.federation.hosts import allowed_hosts
from srm.service.views.views import Views


def server_config(
    config: Config, host: str | None = None, port: int | None = None
) -> uvicorn.Config:
    """Return uvicorn's configuration with the application."""
    settings = replace(
        config.service,
        host=config.service.host if host is None else host,
        port=config.service.port if port is None else port,
    )
    config = replace(config, service=settings)
    access = access_of(settings, settings.host)
    options = server_options(settings.access)
    return uvicorn.Config(
        create_app(Views(config), access, hosts=allowed_hosts(settings)),
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        server_header=False,
        **options,
    )
