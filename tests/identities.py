"""An identity provider: gives signed tokens to clients that know a secret, and its public key."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final
from urllib.parse import parse_qs

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from tests.served import answering

from srm_lab.stack.process import LOOPBACK

SECRET: Final = "of the client"


class IdentityProvider:
    """OpenID Connect's token endpoint and key set, as far as brokers and clients use them."""

    audience = "kafka"

    def __init__(self, port: int, lifetime_s: int) -> None:
        self.lifetime_s = lifetime_s
        self.given = 0
        self._url = f"http://{LOOPBACK}:{port}"
        self._key = rsa.generate_private_key(65537, 2048)

    @property
    def keys_url(self) -> str:
        return f"{self._url}/keys"

    def client(self, secret: str = SECRET) -> dict[str, str]:
        """Return the properties of a client, librdkafka's."""
        return {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": f"{self._url}/token",
            "sasl.oauthbearer.client.id": "srm",
            "sasl.oauthbearer.client.secret": secret,
            "sasl.oauthbearer.scope": "replicate",
            "sasl.oauthbearer.extensions": "tenant=tests",
        }

    def token(self, scope: str) -> dict[str, object]:
        self.given += 1
        now = int(time.time())
        head = _part({"alg": "RS256", "kid": "tests"})
        claims = _part(
            {
                "sub": "srm",
                "aud": self.audience,
                "scope": scope,
                "iat": now,
                "exp": now + self.lifetime_s,
            }
        )
        signature = self._key.sign(f"{head}.{claims}".encode(), padding.PKCS1v15(), hashes.SHA256())
        token = f"{head}.{claims}.{_text(signature)}"
        return {"access_token": token, "token_type": "Bearer", "expires_in": self.lifetime_s}

    def keys(self) -> dict[str, object]:
        numbers = self._key.public_key().public_numbers()
        key = {
            "kty": "RSA",
            "kid": "tests",
            "use": "sig",
            "alg": "RS256",
            "n": _number(numbers.n),
            "e": _number(numbers.e),
        }
        return {"keys": [key]}


@contextmanager
def identity_provider(lifetime_s: int = 600) -> Iterator[IdentityProvider]:
    """Run one in a thread."""
    server = ThreadingHTTPServer((LOOPBACK, 0), BaseHTTPRequestHandler)
    provider = IdentityProvider(server.server_address[1], lifetime_s)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(200, provider.keys())

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            [scope] = parse_qs(body).get("scope", [""])
            known = base64.b64encode(f"srm:{SECRET}".encode()).decode()
            if self.headers["Authorization"] == f"Basic {known}":
                self._answer(200, provider.token(scope))
            else:
                self._answer(401, {"error": "invalid_client", "error_description": "wrong secret"})

        def _answer(self, status: int, content: object) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Keep quiet."""

    server.RequestHandlerClass = Handler
    with answering(server):
        yield provider


def _part(content: object) -> str:
    return _text(json.dumps(content).encode())


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _number(value: int) -> str:
    return _text(value.to_bytes((value.bit_length() + 7) // 8, "big"))
