"""Who comes into the service, by real connections: passwords over TLS, certificates, tokens."""

from __future__ import annotations

import json
import os
import ssl
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from tests.certificates import Authority, Signed
from tests.integration.moving import Site
from tests.served import answering, served_as
from tests.waiting import eventually

from srm.service.access.passwords import line
from srm_lab.stack.process import LOOPBACK

pytestmark = [pytest.mark.kafka, pytest.mark.integration]

KEY_PASSWORD = "of the key"


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture
def tls(authority: Authority, tmp_path: Path) -> dict[str, str]:
    """Settings of a service that speaks TLS, its key under a password."""
    show(tmp_path, authority.broker(LOOPBACK))
    (tmp_path / "ca.pem").write_text(authority.own.pem)
    return {
        "service.ssl.certificate.location": "server.pem",
        "service.ssl.key.location": "server.key",
        "service.ssl.key.password": KEY_PASSWORD,
    }


def show(folder: Path, signed: Signed) -> None:
    (folder / "server.pem").write_text(signed.pem)
    (folder / "server.key").write_text(signed.key_pem_under(KEY_PASSWORD))


def trusting(folder: Path, authority: Authority, client: Signed | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority.own.pem)
    if client is not None:
        (folder / "client.pem").write_text(client.pem + client.key_pem)
        context.load_cert_chain(folder / "client.pem")
    return context


def change(site: Site) -> str:
    return f"/v2/flows/{site.p}/{site.b}/lists/topics"


def test_passwords_over_tls(
    site: Site, tls: dict[str, str], authority: Authority, tmp_path: Path
) -> None:
    users = (line("alice", "pass: word", ("ops",)), line("rita", "reads"))
    (tmp_path / "users").write_text("\n".join(users), "utf-8")
    settings = {
        **tls,
        "service.auth": "basic",
        "service.users.location": "users",
        "service.operators": "ops",
    }
    alice, rita = ("alice", "pass: word"), ("rita", "reads")

    with (
        served_as(site.path, settings) as where,
        httpx.Client(
            base_url=f"https://{where}", verify=trusting(tmp_path, authority), timeout=60
        ) as client,
    ):
        assert client.get("/v2/flows").status_code == 401
        assert client.get("/health").status_code in {200, 503}
        assert client.get("/v2/flows", auth=rita).json()["total"] == 2
        assert client.post(change(site), json={"add": ["x"]}, auth=rita).status_code == 403
        done = client.post(change(site), json={"add": ["Orders"]}, auth=alice).json()
        assert (done["by"], done["lists"]["allow"]) == ("alice", ["Orders"])
        assert client.get(change(site), auth=rita).json()["allow"] == ["Orders"]
        assert client.get("/v2/flows", auth=("alice", "wrong")).status_code == 401
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"http://{where}/health", trust_env=False)


def test_a_renewed_certificate_counts_for_the_next_connection(
    site: Site, tls: dict[str, str], authority: Authority, tmp_path: Path
) -> None:
    with served_as(site.path, {**tls, "service.insecure": "true"}) as where:

        def serial() -> int:
            host, port = where.split(":")
            shown = ssl.get_server_certificate((host, int(port)))
            return hash(shown)

        before = serial()
        assert serial() == before
        show(tmp_path, authority.broker(LOOPBACK))
        os.utime(tmp_path / "server.pem", ns=(1, 1))

        assert serial() != before

        (tmp_path / "server.pem").write_text("damaged")
        assert httpx.get(
            f"https://{where}/v2/flows",
            verify=trusting(tmp_path, authority),
            timeout=60,
            trust_env=False,
        ).is_success


def test_certificates_name_their_users(
    site: Site, tls: dict[str, str], authority: Authority, tmp_path: Path
) -> None:
    settings = {
        **tls,
        "service.auth": "mtls",
        "service.ssl.ca.location": "ca.pem",
        "service.operators": "olga",
    }
    with served_as(site.path, settings) as where:

        def come_in(client: Signed | None, method: str = "GET", **body: Any) -> httpx.Response:
            path = change(site)
            return httpx.request(
                method,
                f"https://{where}{path}",
                verify=trusting(tmp_path, authority, client),
                trust_env=False,
                timeout=60,
                **body,
            )

        assert come_in(authority.client("rita")).status_code == 200
        body = {"json": {"add": ["x"], "dry_run": True}}
        assert come_in(authority.client("rita"), "POST", **body).status_code == 403
        assert come_in(authority.client("olga"), "POST", **body).json()["by"] == "olga"
        for stranger in (
            None,
            Authority("others").client("olga"),
            authority.client("olga", days=-1),
        ):
            with pytest.raises(httpx.TransportError):
                come_in(stranger)


class Issuer:
    """An OpenID provider: its document, its keys, and tokens that it signs."""

    def __init__(self) -> None:
        self.keys: dict[str, ec.EllipticCurvePrivateKey] = {}
        self.answers = True
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                documents = {
                    "/.well-known/openid-configuration": {
                        "issuer": issuer.url,
                        "jwks_uri": f"{issuer.url}/keys",
                    },
                    "/keys": {"keys": issuer.public()},
                }
                body = json.dumps(documents[self.path]).encode()
                self.send_response(200 if issuer.answers else 502)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Keep quiet."""

        self.server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
        self.url = f"http://{LOOPBACK}:{self.server.server_address[1]}"
        self.rotate("first")

    def rotate(self, name: str) -> None:
        self.keys[name] = ec.generate_private_key(ec.SECP256R1())

    def public(self) -> list[dict[str, Any]]:
        to_jwk = jwt.algorithms.ECAlgorithm.to_jwk
        return [
            {**to_jwk(key.public_key(), as_dict=True), "kid": name, "use": "sig"}
            for name, key in self.keys.items()
        ]

    def token(self, key: str, **claims: object) -> dict[str, str]:
        said = {
            "iss": self.url,
            "aud": "srm",
            "sub": "u1",
            "exp": int(time.time()) + 3600,
            **claims,
        }
        signed = jwt.encode(said, self.keys[key], algorithm="ES256", headers={"kid": key})
        return {"Authorization": f"Bearer {signed}"}


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    made = Issuer()
    with answering(made.server):
        yield made


def test_tokens_of_a_provider_whose_keys_change(site: Site, issuer: Issuer) -> None:
    settings = {
        "service.auth": "bearer",
        "service.oidc.issuer": issuer.url,
        "service.oidc.audience": "srm",
        "service.oidc.roles.claim": "groups",
        "service.operators": "srm-ops",
    }
    with (
        served_as(site.path, settings) as where,
        httpx.Client(base_url=f"http://{where}", trust_env=False, timeout=60) as client,
    ):

        def status(headers: dict[str, str]) -> int:
            return client.get("/v2/flows", headers=headers).status_code

        assert status({}) == 401
        assert status(issuer.token("first")) == 200
        assert status(issuer.token("first", aud="another")) == 401
        operator = issuer.token("first", groups=["srm-ops"], preferred_username="olga")
        body = {"add": ["x"], "dry_run": True}
        assert client.post(change(site), json=body, headers=operator).json()["by"] == "olga"

        issuer.rotate("second")
        eventually(lambda: status(issuer.token("second")) == 200, "a new key is known")

        issuer.answers = False
        issuer.rotate("third")
        eventually(lambda: status(issuer.token("third")) == 503, "the provider is away")
        assert status(issuer.token("first")) == 200
        issuer.answers = True
        eventually(lambda: status(issuer.token("third")) == 200, "the provider is back")
