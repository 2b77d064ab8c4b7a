"""The provider's keys: asked for beside the requests, waited for only by who needs a new one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from fastapi.testclient import TestClient

from srm.config.model import AccessSettings
from srm.errors import UnavailableError
from srm.service.access.logins import Keys, bearer_access
from srm.service.app import create_app
from srm.service.views.views import Views

ISSUER = "https://id.example.org"
KEY = rsa.generate_private_key(65537, 2048)


def key_set(*key_ids: str, **more: str) -> dict[str, Any]:
    told = jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key(), as_dict=True)
    return {"keys": [{**told, "kid": key_id, **more} for key_id in key_ids]}


class Provider(httpx.AsyncBaseTransport):
    """Tells keys, or hangs; counts how often it was asked."""

    def __init__(self, keys: Any) -> None:
        self.keys = keys
        self.asked = 0
        self.hangs = False
        self.released = asyncio.Event()
        self.now = 0.0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if not request.url.path.endswith("openid-configuration"):
            return httpx.Response(200, json=self.keys)
        self.asked += 1
        if self.hangs:
            await self.released.wait()
            self.now += 5
            raise httpx.ReadTimeout("")
        return httpx.Response(200, json={"issuer": ISSUER, "jwks_uri": f"{ISSUER}/keys"})

    def known(self) -> Keys:
        return Keys(ISSUER, clock=lambda: self.now, transport=self)


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        await asyncio.wait_for(test(), 60)

    asyncio.run(limited())


def test_who_has_a_known_key_does_not_wait_for_a_provider_that_hangs() -> None:
    async def test() -> None:
        provider = Provider(key_set("known"))
        keys = provider.known()
        await keys.key("known")
        provider.hangs = True
        provider.now += 301

        assert all([await keys.key("known") for _ in range(3)])

        provider.released.set()
        with pytest.raises(UnavailableError):
            await keys.key("unknown")
        provider.released.clear()
        provider.now += 3600
        assert all([await keys.key("known") for _ in range(3)])

    run(test)


def test_a_provider_that_hangs_is_left_in_peace_after_each_attempt() -> None:
    async def test() -> None:
        provider = Provider(key_set("known"))
        keys = provider.known()
        provider.hangs = True
        provider.released.set()

        for _ in range(3):
            with pytest.raises(UnavailableError, match="no answer within 5 s"):
                await keys.key("known")
            provider.now += 2

        assert provider.asked == 1

    run(test)


def test_who_needs_a_new_key_waits_for_the_attempt_that_is_on_its_way() -> None:
    async def test() -> None:
        provider = Provider(key_set("old"))
        keys = provider.known()
        await keys.key("old")
        provider.keys = key_set("old", "new")
        provider.now += 6

        found = await asyncio.gather(*(keys.key(name) for name in ("new", "old", "new")))

        assert all(found)
        assert provider.asked == 2

    run(test)


def test_a_key_that_may_have_been_withdrawn_long_ago_is_not_taken_unasked() -> None:
    async def test() -> None:
        provider = Provider(key_set("withdrawn"))
        keys = provider.known()
        assert await keys.key("withdrawn") is not None
        provider.keys = key_set("another")
        provider.now += 3600

        assert await keys.key("withdrawn") is None

    run(test)


@pytest.mark.parametrize("told", [{"keys": None}, {"keys": 5}, {}])
def test_an_answer_without_keys_is_told(told: object) -> None:
    async def test() -> None:
        with pytest.raises(UnavailableError, match="no list of keys"):
            await Provider(told).known().key("x")

    run(test)


def test_a_key_that_cannot_be_read_costs_no_other() -> None:
    async def test() -> None:
        told = key_set("good")
        told["keys"][:0] = [5, {}, {"kty": "RSA"}, {"kty": "EC", "alg": ["ES256"]}, {"kty": "new"}]

        assert await Provider(told).known().key("good") is not None

    run(test)


def signed(algorithm: str, **claims: object) -> dict[str, str]:
    usual = {"iss": ISSUER, "aud": "srm", "sub": "tom", "exp": int(time.time()) + 60}
    token = jwt.encode({**usual, **claims}, KEY, algorithm, headers={"kid": "known"})
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize(
    ("said", "taken"),
    [({}, ["RS256", "RS512", "PS256", "PS384"]), ({"alg": "PS256"}, ["PS256"])],
    ids=["of no algorithm", "of one"],
)
def test_an_rsa_key_takes_each_signature_of_its_kind_that_its_provider_does_not_rule_out(
    views: Views, said: dict[str, str], taken: list[str]
) -> None:
    settings = AccessSettings(oidc_issuer=ISSUER, oidc_audience="srm")
    keys = Provider(key_set("known", **said)).known()
    client = TestClient(create_app(views, bearer_access(settings, keys)))
    tried = ("RS256", "RS512", "PS256", "PS384")

    found = {name: client.get("/v2/flows", headers=signed(name)).status_code for name in tried}

    assert found == {name: 200 if name in taken else 401 for name in tried}
