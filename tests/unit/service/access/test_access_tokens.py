"""Bearer tokens: of this provider, for this service, signed by a key that nobody else has."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from fastapi.testclient import TestClient

from srm.config.model import AccessSettings
from srm.errors import ConfigError, UnavailableError
from srm.service.access.logins import Keys, bearer_access, groups, require_secure
from srm.service.app import create_app
from srm.service.routes.actions import Actions
from srm.service.views.views import Views

ISSUER = "https://id.example.org/realms/srm"
KEY = rsa.generate_private_key(65537, 2048)
CURVE = ec.generate_private_key(ec.SECP256R1())
SETTINGS = AccessSettings(
    oidc_issuer=ISSUER,
    oidc_audience="srm",
    oidc_roles_claim="realm_access.roles",
    operators=("srm-ops",),
)


class KnownKeys(Keys):
    """Keys that need no provider."""

    def __init__(self) -> None:
        super().__init__(ISSUER)
        self.error: UnavailableError | None = None
        algorithm = jwt.algorithms.RSAAlgorithm
        curve = jwt.algorithms.ECAlgorithm
        self.known = {
            "rsa": jwt.PyJWK(algorithm.to_jwk(KEY.public_key(), as_dict=True), "RS256"),
            "curve": jwt.PyJWK(curve.to_jwk(CURVE.public_key(), as_dict=True), "ES256"),
        }

    async def key(self, key_id: str) -> jwt.PyJWK | None:
        if self.error is not None:
            raise self.error
        return self.known.get(key_id)


KNOWN = KnownKeys()
ACCESS = bearer_access(SETTINGS, KNOWN)


@pytest.fixture
def client(views: Views, acting: Actions) -> TestClient:
    return TestClient(create_app(views, ACCESS, acting), raise_server_exceptions=False)


def token(
    key: Any = KEY, algorithm: str = "RS256", kid: str = "rsa", **claims: object
) -> dict[str, str]:
    now = int(time.time())
    usual: dict[str, object] = {
        "iss": ISSUER,
        "aud": "srm",
        "sub": "4711",
        "exp": now + 60,
        "preferred_username": "tom",
        "realm_access": {"roles": ["srm-ops"]},
    }
    said = {name: value for name, value in {**usual, **claims}.items() if value is not None}
    signed = jwt.encode(said, key, algorithm=algorithm, headers={"kid": kid})
    return {"Authorization": f"Bearer {signed}"}


def test_a_token_of_the_provider_comes_in_and_its_groups_act(client: TestClient) -> None:
    assert client.get("/v2/flows", headers=token()).status_code == 200
    assert client.get("/v2/flows", headers=token(CURVE, "ES256", "curve")).status_code == 200

    done = client.post(
        "/v2/flows/P/B/lists/topics", json={"add": ["a"], "dry_run": True}, headers=token()
    )

    assert done.json()["by"] == "tom"


def test_a_name_gives_no_rights_for_users_may_choose_it(client: TestClient) -> None:
    named = token(preferred_username="srm-ops", realm_access={"roles": []})

    assert client.post("/v2/flows/P/B/refresh", json={}, headers=named).status_code == 403


def public_key() -> bytes:
    return KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def with_shared_key() -> dict[str, str]:
    """A token signed with the public key, as if it were a shared one."""
    claims = {"iss": ISSUER, "aud": "srm", "sub": "x", "exp": int(time.time()) + 60}
    head = {"alg": "HS256", "typ": "JWT", "kid": "rsa"}
    signer = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256)
    parts = b".".join(
        jwt.utils.base64url_encode(jwt.api_jws.json.dumps(each).encode()) for each in (head, claims)
    )
    signature = jwt.utils.base64url_encode(signer.sign(parts, public_key()))
    return {"Authorization": f"Bearer {(parts + b'.' + signature).decode()}"}


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (lambda: token(aud="another"), "Audience"),
        (lambda: token(aud=None), "aud"),
        (lambda: token(iss="https://id.example.org/realms/other"), "issuer"),
        (lambda: token(exp=int(time.time()) - 31), "expired"),
        (lambda: token(exp=None), "exp"),
        (lambda: token(sub=None), "sub"),
        (lambda: token(nbf=int(time.time()) + 90), "not yet valid"),
        (lambda: token(rsa.generate_private_key(65537, 2048)), "Signature"),
        (lambda: token(kid="unknown"), "no such key"),
        (lambda: token(KEY, "PS256"), "another algorithm"),
        (lambda: token("", "none"), "algorithm 'none' is not allowed"),
        (with_shared_key, "algorithm 'HS256' is not allowed"),
        (lambda: {"Authorization": "Bearer x.y.z"}, "refused"),
        (lambda: {"Authorization": "Bearer"}, "give a bearer token"),
        (lambda: {"Authorization": "Basic YTpi"}, "give a bearer token"),
        (dict, "give a bearer token"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_any_other_token_is_refused(
    client: TestClient, sent: Callable[[], dict[str, str]], why: str
) -> None:
    headers = sent()

    refused = client.get("/v2/flows", headers=headers)

    assert refused.status_code == 401
    assert why in refused.json()["detail"]
    assert refused.headers["WWW-Authenticate"].startswith("Bearer")
    given = headers.get("Authorization", "").partition(" ")[2]
    assert not given or given not in refused.text


def test_clocks_may_differ_by_the_leeway(client: TestClient) -> None:
    late = token(exp=int(time.time()) - 20)

    assert client.get("/v2/flows", headers=late).status_code == 200


def test_a_provider_that_does_not_answer_is_told_as_503(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KNOWN, "error", UnavailableError("the OpenID provider is away"))

    told = client.get("/v2/flows", headers=token())

    assert (told.status_code, told.headers["Retry-After"]) == (503, "5")


def test_groups_are_found_inside_objects_and_between_blanks() -> None:
    claims = {"realm_access": {"roles": ["a", "b"]}, "scope": "srm.read srm.act", "n": 5}

    assert groups(claims, "realm_access.roles") == {"a", "b"}
    assert groups(claims, "scope") == {"srm.read", "srm.act"}
    assert groups(claims, "n") == groups(claims, "nothing.here") == set()


def test_a_claim_whose_name_has_dots_is_found_by_it_before_objects_in_objects_are() -> None:
    claims = {"https://acme.example/roles": ["a"], "realm.roles": ["b"], "realm": {"roles": ["c"]}}

    assert groups(claims, "https://acme.example/roles") == {"a"}
    assert groups(claims, "realm.roles") == {"b"}


def test_keys_are_told_only_by_who_cannot_be_impersonated() -> None:
    for url in ("https://id.example.org", "http://localhost:8080", "http://127.0.0.1/x"):
        assert require_secure(url) == url
    for url in ("http://id.example.org", "ftp://localhost", "file:///etc/passwd", "None"):
        with pytest.raises(ConfigError, match="not https"):
            require_secure(url)


def test_unknown_keys_do_not_make_the_provider_be_asked_all_the_time() -> None:
    now = 0.0
    keys = Keys("http://127.0.0.1:9/", clock=lambda: now)

    async def ask() -> list[str]:
        return [await told(keys), await told(keys)]

    first, again = asyncio.run(ask())

    assert first == again
    assert "cannot read the keys of the OpenID provider" in first


async def told(keys: Keys) -> str:
    try:
        await keys.key("x")
    except UnavailableError as error:
        return str(error)
    return ""
