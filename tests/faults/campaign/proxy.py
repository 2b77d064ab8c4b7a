"""Stands between clients and one listener of a broker, and stops forwarding when told to.

As behind a firewall that drops packets: connections stay open, and whatever is sent into them
stays unanswered.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Final

from srm_lab.stack.process import LOOPBACK

_CHUNK: Final = 1 << 16


class Proxy:
    """Forwards TCP connections to a port of this machine."""

    def __init__(self) -> None:
        self._listener = socket.create_server((LOOPBACK, 0), backlog=256)
        self.port: int = self._listener.getsockname()[1]
        self.to_port = 0
        self._forwards = threading.Event()
        self._forwards.set()
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def drop(self) -> None:
        """Forward nothing from now on."""
        self._forwards.clear()

    def forward(self, *, hang_up: bool = False) -> None:
        """Forward again what has waited, or end every connection of until now."""
        if hang_up:
            with self._lock:
                for connection in self._open:
                    with suppress(OSError):
                        connection.shutdown(socket.SHUT_RDWR)
        self._forwards.set()

    def close(self) -> None:
        """Take no more connections and end those there are."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.forward(hang_up=True)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        self._forwards.wait()
        try:
            server = socket.create_connection((LOOPBACK, self.to_port), 10)
        except OSError:
            client.close()
            return
        server.settimeout(None)
        with self._lock:
            self._open |= {client, server}
        back = threading.Thread(target=self._pump, args=(server, client), daemon=True)
        back.start()
        self._pump(client, server)
        back.join()
        with self._lock:
            self._open -= {client, server}
        client.close()
        server.close()

    def _pump(self, from_: socket.socket, to: socket.socket) -> None:
        with suppress(OSError):
            while data := from_.recv(_CHUNK):
                self._forwards.wait()
                to.sendall(data)
        for side in (from_, to):
            with suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)
