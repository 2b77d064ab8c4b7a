"""The service behind a real port, in a thread of the test."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import HTTPServer
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from tests.waiting import eventually

from srm.config.loader import load_config
from srm.service.app import server_config
from srm_lab.stack.process import LOOPBACK, free_port


@contextmanager
def served(app: FastAPI) -> Iterator[str]:
    """Serve an application; return its address."""
    port = free_port()
    with _running(uvicorn.Config(app, LOOPBACK, port, log_config=None)):
        yield f"http://{LOOPBACK}:{port}"


@contextmanager
def served_as(properties: Path, settings: Mapping[str, str]) -> Iterator[str]:
    """Serve what a properties file and more settings say; give host and port."""
    port = free_port()
    config = load_config(properties, {"service.port": str(port), **settings})
    with _running(server_config(config)):
        yield f"{LOOPBACK}:{port}"


@contextmanager
def answering(server: HTTPServer) -> Iterator[str]:
    """Answer requests in a thread until the block ends; give host and port."""
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def _running(config: uvicorn.Config) -> Iterator[None]:
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        eventually(lambda: server.started or not thread.is_alive(), "the service listens")
        assert server.started
        yield
    finally:
        server.should_exit = True
        thread.join(60)
    assert not thread.is_alive()
