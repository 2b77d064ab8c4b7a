"""Tokens of OAUTHBEARER: where they come from and when they are renewed."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator

import pytest
from tests.identities import IdentityProvider, identity_provider
from tests.seconds import Seconds

from srm.errors import AuthorizationError, ConfigError, UnavailableError
from srm.kafka.wire.login import TokenSource, _parse_grant, unsecured_token
from srm.kafka.wire.security import Sasl, UnsecuredTokens, read_security


@pytest.fixture
def identities() -> Iterator[IdentityProvider]:
    with identity_provider(lifetime_s=100) as provider:
        yield provider


def source(properties: dict[str, str], clock: Seconds) -> TokenSource:
    security = read_security("P", {"security.protocol": "SASL_PLAINTEXT", **properties})
    assert security.sasl is not None
    return TokenSource("P", security.sasl, clock)


def claims(token: str) -> dict[str, object]:
    _, body, _ = token.split(".")
    content = json.loads(base64.urlsafe_b64decode(body + "=="))
    assert isinstance(content, dict)
    return content


def test_a_token_is_fetched_once_and_renewed_before_it_expires(
    identities: IdentityProvider,
) -> None:
    clock = Seconds()
    tokens = source(identities.client(), clock)

    async def run() -> None:
        await asyncio.gather(tokens.token(), tokens.token())
        clock.now += 79
        await tokens.token()
        assert identities.given == 1
        clock.now += 2
        await tokens.token()
        assert identities.given == 2

    asyncio.run(run())
    assert tokens.extensions == {"tenant": "tests"}


def test_an_endpoint_that_is_away_is_borne_as_long_as_the_token_in_hand_is_good() -> None:
    clock = Seconds()
    with identity_provider(lifetime_s=100) as provider:
        tokens = source(provider.client(), clock)
        first = asyncio.run(tokens.token())
    clock.now += 90

    assert asyncio.run(tokens.token()) == first
    clock.now += 20
    with pytest.raises(UnavailableError, match="cluster P: token endpoint http://127"):
        asyncio.run(tokens.token())


def test_a_refused_client_is_told_the_endpoints_reason(identities: IdentityProvider) -> None:
    tokens = source(identities.client(secret="guessed"), Seconds())

    with pytest.raises(AuthorizationError, match=r"HTTP 401: wrong secret; check sasl\.oauth"):
        asyncio.run(tokens.token())


def test_an_endpoint_that_is_no_address_is_a_mistake_in_the_file(
    identities: IdentityProvider,
) -> None:
    endpoint = {"sasl.oauthbearer.token.endpoint.url": "id.example.org/token"}
    tokens = source({**identities.client(), **endpoint}, Seconds())

    with pytest.raises(ConfigError, match=r"token endpoint id\.example\.org/token: not an http"):
        asyncio.run(tokens.token())


@pytest.mark.parametrize(
    ("answer", "lifetime_s"),
    [
        ({"access_token": "opaque", "expires_in": 60}, 60),
        ({"access_token": "opaque", "expires_in": "60"}, 60),
        ({"access_token": unsecured_token(UnsecuredTokens("srm", lifetime_s=50), 0.0)}, 50),
        ({"access_token": "opaque"}, 300),
        ({"access_token": "a.b.c"}, 300),
    ],
)
def test_the_lifetime_is_the_endpoints_or_the_tokens_own(
    answer: dict[str, object], lifetime_s: float
) -> None:
    assert _parse_grant("here", 200, json.dumps(answer).encode())[1] == lifetime_s


@pytest.mark.parametrize(
    ("status", "content", "kind"),
    [
        (503, b"busy", UnavailableError),
        (200, b"<html>", AuthorizationError),
        (200, b"[]", AuthorizationError),
        (400, b'{"error": "invalid_scope"}', AuthorizationError),
    ],
)
def test_other_answers_are_errors(status: int, content: bytes, kind: type[Exception]) -> None:
    with pytest.raises(kind, match=f"here: HTTP {status}"):
        _parse_grant("here", status, content)


def test_unsecured_tokens_say_who_and_until_when() -> None:
    clock = Seconds()
    clock.now += 0.9999
    tokens = UnsecuredTokens("srm", "azp", ("a", "b"), "roles", lifetime_s=60)

    token = asyncio.run(TokenSource("P", Sasl("OAUTHBEARER", tokens=tokens), clock).token())

    assert claims(token) == {
        "azp": "srm",
        "roles": ["a", "b"],
        "iat": 1_000,
        "exp": 1_060,
    }
