"""POST over HTTP without redirects, for short answers."""

from __future__ import annotations

import base64
import http.client
import ssl
from collections.abc import Mapping
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener


class PostError(Exception):
    """No answer: the address is invalid, or nothing answers there; ``cause`` is what failed."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause) or repr(cause))
        self.cause = cause


def basic(user: str, password: str = "") -> str:
    """Return the Authorization header of a name and a password (RFC 7617)."""
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


class _NoRedirect(HTTPRedirectHandler):
    def redirect_request(self, *_args: object) -> None:
        """Take the answer as it is."""


def post(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    timeout_s: float,
    most: int,
    authorities: ssl.SSLContext | None = None,
) -> tuple[int, bytes]:
    """Send a body; return the status and the beginning of the answer, at most ``most`` bytes.

    ``authorities``: trusted issuers of the server's certificate; the system's by default.
    PostError: no answer; ``cause`` is a ValueError where the address is invalid.
    """
    try:
        parts = urlsplit(url)
        user, found, place = parts.netloc.rpartition("@")
        login = {"Authorization": basic(*map(unquote, user.split(":", 1)))} if found else {}
        if parts.scheme not in {"http", "https"} or not place:
            raise PostError(ValueError("not an http(s) address"))
        address = parts._replace(netloc=place).geturl()
        request = Request(address, body, {**login, **headers}, method="POST")  # noqa: S310 - checked
        opener = build_opener(_NoRedirect, HTTPSHandler(context=authorities))
        try:
            answer = opener.open(request, timeout=timeout_s)
        except HTTPError as error:
            answer = error
        with answer:
            return int(answer.status), answer.read(most)
    except URLError as error:
        raise PostError(error.reason if isinstance(error.reason, Exception) else error) from error
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise PostError(error) from error
