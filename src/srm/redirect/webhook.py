"""Redirector that posts each step of a move to a webhook."""

from __future__ import annotations

import hashlib
import hmac
import threading
import time
from typing import Final
from urllib.parse import quote, urlsplit

from srm.domain.moves.routing import RedirectOrder
from srm.engine.ports import CallResult
from srm.http_post import PostError, post
from srm.redirect.attempts import RefusedError, TryAgainError, attempt
from srm.telemetry import trace_headers

TIMESTAMP_HEADER: Final = "X-Srm-Timestamp"
SIGNATURE_HEADER: Final = "X-Srm-Signature"
KEY_HEADER: Final = "Idempotency-Key"

_ONE_TRY_S: Final = 10.0
_SUCCESS: Final = range(200, 300)
_AGAIN: Final = frozenset({408, 425, 429})
_SERVER_ERROR: Final = 500
_SHOWN: Final = 200
_READ: Final = 4096


def sign(secret: str, timestamp: str, body: bytes) -> str:
    """Return the value of the signature header for a body and its timestamp."""
    signed = hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256)
    return f"sha256={signed.hexdigest()}"


class Webhook:
    """Posts orders as JSON (implements :class:`srm.engine.ports.Caller`).

    2xx is success. 408, 425, 429, 5xx and no answer are retried. Any other status is a refusal.
    Only the host of the address is ever shown.
    """

    def __init__(self, url: str, secret: str, limit_s: float) -> None:
        self._url = url
        self._host = urlsplit(url).hostname or ""
        self._secret = secret
        self._limit_s = limit_s

    @property
    def limit_s(self) -> float:
        """Longest time of a call in seconds, all attempts included."""
        return self._limit_s + _ONE_TRY_S

    def call(self, order: RedirectOrder, cancelled: threading.Event) -> CallResult:
        """Post an order until it is accepted, refused, or the time is over."""
        return attempt(lambda: self._post(order), self._limit_s, cancelled)

    def _post(self, order: RedirectOrder) -> str:
        body, timestamp = order.value(), str(int(time.time()))
        headers = {
            "Content-Type": "application/json",
            KEY_HEADER: quote(order.key),
            TIMESTAMP_HEADER: timestamp,
            SIGNATURE_HEADER: sign(self._secret, timestamp, body),
            **trace_headers(),
        }
        timeout_s = min(_ONE_TRY_S, self._limit_s)
        try:
            status, read = post(self._url, body, headers, timeout_s=timeout_s, most=_READ)
        except PostError as error:
            # The text of a ValueError may hold the address.
            why = "invalid address" if isinstance(error.cause, ValueError) else str(error)
            raise TryAgainError(f"{self._host} does not answer: {why}") from None
        text = _first_line(read)
        said = f"{self._host} answered {status}{f': {text}' if text else ''}"
        if status in _SUCCESS:
            return said
        if status in _AGAIN or status >= _SERVER_ERROR:
            raise TryAgainError(said)
        raise RefusedError(said)


def _first_line(read: bytes) -> str:
    """Return the printable beginning of an answer."""
    lines = read.decode(errors="replace").strip().splitlines()
    return "".join(c for c in lines[0][:_SHOWN] if c.isprintable()) if lines else ""
