"""A service that listens on a real port, in a thread of the test."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from tests.waiting import eventually

from srm.config.loader import load_config
from srm.service.serving import server_config
from srm.stack.ports import LOOPBACK, free_port


@contextmanager
def served(properties: Path, settings: Mapping[str, str]) -> Iterator[str]:
    """Serve what a properties file and more settings say; give host and port."""
    port = free_port()
    lines = {"service.port": str(port), **settings}
    config = load_config(properties, lines)
    server = uvicorn.Server(server_config(config))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        eventually(lambda: server.started or not thread.is_alive(), "the service listens")
        assert server.started
        yield f"{LOOPBACK}:{port}"
    finally:
        server.should_exit = True
        thread.join()
