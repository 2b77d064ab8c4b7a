"""The service's application behind a real port, in a thread of the test."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI
from tests.waiting import eventually

from srm.stack.ports import LOOPBACK, free_port


@contextmanager
def served(app: FastAPI) -> Iterator[str]:
    """Serve an application; return its address."""
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(app, LOOPBACK, port, log_config=None))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        eventually(lambda: server.started, "the service listens")
        yield f"http://{LOOPBACK}:{port}"
    finally:
        server.should_exit = True
        thread.join(60)
    assert not thread.is_alive()
