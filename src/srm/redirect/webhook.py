"""Redirector that posts each step of a move to a webhook."""

from __future__ import annotations

import hashlib
import hmac
import logging
import threading
import time
from typing import Final
from urllib.parse import quote, urlsplit

import httpx

from srm.domain.moves.routing.redirects import RedirectOrder
from srm.engine.ports import CallResult
from srm.redirect.attempts import RefusedError, TryAgainError, attempt
from srm.telemetry import trace_headers

TIMESTAMP_HEADER: Final = "X-Srm-Timestamp"
SIGNATURE_HEADER: Final = "X-Srm-Signature"
KEY_HEADER: Final = "Idempotency-Key"

_ONE_TRY_S: Final = 10.0
_AGAIN: Final = frozenset({408, 425, 429})
_SHOWN: Final = 200
_READ: Final = 4096


def sign(secret: str, timestamp: str, body: bytes) -> str:
    """Return the value of the signature header for a body and its timestamp."""
    signed = hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256)
    return f"sha256={signed.hexdigest()}"


class _HostAlone(logging.Filter):
    """Reduces addresses that httpx logs to the host, because some are secrets."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(
                each.host if isinstance(each, httpx.URL) else each for each in record.args
            )
        return True


logging.getLogger("httpx").addFilter(_HostAlone())


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
        with httpx.Client(timeout=min(_ONE_TRY_S, self._limit_s), follow_redirects=False) as client:
            return attempt(lambda: self._post(client, order), self._limit_s, cancelled)

    def _post(self, client: httpx.Client, order: RedirectOrder) -> str:
        body, timestamp = order.value(), str(int(time.time()))
        headers = {
            "Content-Type": "application/json",
            KEY_HEADER: quote(order.key),
            TIMESTAMP_HEADER: timestamp,
            SIGNATURE_HEADER: sign(self._secret, timestamp, body),
            **trace_headers(),
        }
        try:
            with client.stream("POST", self._url, content=body, headers=headers) as response:
                status, text = response.status_code, _beginning(response)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            why = type(error).__name__ if isinstance(error, httpx.InvalidURL) else str(error)
            raise TryAgainError(f"{self._host} does not answer: {why or repr(error)}") from error
        said = f"{self._host} answered {status}{f': {text}' if text else ''}"
        if httpx.codes.is_success(status):
            return said
        if status in _AGAIN or httpx.codes.is_server_error(status):
            raise TryAgainError(said)
        raise RefusedError(said)


def _beginning(response: httpx.Response) -> str:
    """Return the first line of an answer; read only a limited part of it."""
    read = next(response.iter_bytes(_READ), b"")
    lines = read.decode(errors="replace").strip().splitlines()
    return "".join(c for c in lines[0][:_SHOWN] if c.isprintable()) if lines else ""
