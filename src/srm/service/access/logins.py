"""Authentication of users of a standalone service, and its TLS.

Users have none, a password, a certificate or a bearer token of an OpenID provider (OpenID Connect
Discovery, RFC 7519, 7517).
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import jwt
from fastapi import Depends, HTTPException, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from uvicorn.protocols.http.h11_impl import H11Protocol

from srm.config.model import AccessSettings, RemoteSettings, ServiceSettings
from srm.config.security import trust
from srm.errors import ConfigError, UnavailableError
from srm.files import file_stamp
from srm.service.access import access
from srm.service.access.passwords import Passwords, UsersFile

PEER: Final = "peer_certificate"
"""Key of the client certificate in the state of a request."""
_logger = logging.getLogger(__name__)


class PeerProtocol(H11Protocol):
    """HTTP/1.1 of uvicorn that adds the client certificate of the connection to requests."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        tls = transport.get_extra_info("ssl_object")
        self.app_state = {**self.app_state, PEER: tls.getpeercert() if tls is not None else None}
        super().connection_made(transport)


def server_options(settings: AccessSettings) -> dict[str, Any]:
    """Return the arguments of uvicorn for TLS; none without a certificate."""
    if settings.certificate_location is None:
        if settings.key_location is not None:
            raise ConfigError("service.ssl.key.location needs service.ssl.certificate.location")
        return {}
    context = server_context(settings)
    options: dict[str, Any] = {"ssl_context_factory": lambda _config, _default: context}
    if settings.auth == "mtls":
        options["http"] = PeerProtocol
    return options


def server_context(settings: AccessSettings) -> ssl.SSLContext:
    """Return a context with the service's certificate, renewed too; ``mtls`` checks clients'."""
    chain = _Chain(settings)
    chain.context.sni_callback = chain.renew
    return chain.context


class _Chain:
    def __init__(self, settings: AccessSettings) -> None:
        self._settings = settings
        self._written = self._stamp()
        self.context = self._read()

    def renew(self, handshake: ssl.SSLObject, _name: str | None, _of: ssl.SSLContext) -> None:
        """Read the files again if they have changed; called for each handshake."""
        written = self._stamp()
        if written != self._written:
            self._written = written
            try:
                self.context = self._read()
            except ConfigError as error:
                _logger.warning("the old certificate stays in use: %s", error)
        # The handshake has its certificate from the old context; a new context replaces it.
        handshake.context = self.context

    def _read(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        load_chain(context, "service.ssl", self._settings)
        if self._settings.auth == "mtls":
            # A handshake checks against the authorities of the context that it ends with.
            ca = self._settings.ca_location
            load("service.ssl.ca.location", ca, lambda path: trust(context, str(path)))
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _stamp(self) -> object:
        files = (self._settings.certificate_location, self._settings.key_location)
        return [file_stamp(file) for file in files if file is not None]


def load_chain(
    context: ssl.SSLContext, keys: str, settings: AccessSettings | RemoteSettings
) -> None:
    password = settings.key_password.reveal()
    load(
        f"{keys}.certificate.location",
        settings.certificate_location,
        # Without a password OpenSSL would prompt for one on the terminal and wait.
        lambda path: context.load_cert_chain(path, settings.key_location, lambda: password),
    )


def authorities(key: str, path: Path | None) -> ssl.SSLContext:
    """Return a client's context that trusts the authorities of files, or of the system."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if path is None:
        context.load_default_certs()
    else:
        load(key, path, lambda path: trust(context, str(path)))
    return context


def load(key: str, path: Path | None, read: Callable[[Path], object]) -> None:
    if path is None:
        raise ConfigError(f"{key} is missing")
    try:
        read(path)
    except ConfigError as error:
        raise ConfigError(f"{key}: {error}") from None
    except ssl.SSLError as error:
        why = error.reason or "it cannot be used"
        raise ConfigError(f"{key}: {path}: {why.lower().replace('_', ' ')}") from None
    except OSError as error:
        raise ConfigError(f"{key}: {path}: {error.strerror}") from None


def access_of(settings: ServiceSettings, host: str) -> access.Authenticator:
    """Return the authenticator of a standalone service, unless it would admit any client."""
    return _KINDS[settings.access.auth](settings.access, host)


def _anonymous(settings: AccessSettings, host: str) -> access.Authenticator:
    """Treat all clients as one user; allow only loopback unless ``service.insecure`` is set."""
    if not settings.insecure and not is_loopback(host):
        raise ConfigError(
            f"service.host = {host} is reachable remotely, and service.auth = none admits all of "
            "them: set service.auth (docs/service.md), or confirm with service.insecure = true"
        )

    def identify() -> access.User:
        return access.User(access.ANONYMOUS, access.roles(settings, {access.ANONYMOUS}))

    return identify


def _passwords(settings: AccessSettings, _host: str) -> access.Authenticator:
    if settings.users_location is None:
        raise ConfigError(
            "service.auth = basic needs service.users.location, a file with lines that "
            "'srm-service password NAME' writes"
        )
    return Passwords(settings, UsersFile(settings.users_location)).identify


def _certificates(settings: AccessSettings, _host: str) -> access.Authenticator:
    if settings.certificate_location is None or settings.ca_location is None:
        raise ConfigError(
            "service.auth = mtls needs service.ssl.certificate.location, service.ssl.key.location "
            "and service.ssl.ca.location"
        )

    def identify(request: Request) -> access.User:
        name = common_name(getattr(request.state, PEER, None) or {})
        if not name:
            raise HTTPException(401, "the certificate has no common name (CN)")
        return access.User(name, access.roles(settings, {name}))

    return identify


def common_name(certificate: Mapping[str, Any]) -> str:
    """Return the last common name of the subject of a certificate in the form of ``ssl``."""
    names = dict(pair for part in certificate.get("subject", ()) for pair in part)
    return str(names.get("commonName", ""))


_KINDS: Final[Mapping[str, Callable[[AccessSettings, str], access.Authenticator]]] = {
    "none": _anonymous,
    "basic": _passwords,
    "bearer": lambda settings, _host: bearer_access(settings),
    "mtls": _certificates,
}


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
"""Signatures with a private key; with a shared key, or none, a verifier could also forge."""
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_RSA: Final = tuple(name for name in ALGORITHMS if name[:2] in {"RS", "PS"})
_KEPT_S: Final = 300.0
_STALE_S: Final = 600.0
"""Age of keys that may have been withdrawn; requests wait for newer ones if possible."""
_AGAIN_S: Final = 5.0
"""Minimum pause between two requests to the provider for an unknown key."""
_TIMEOUT_S: Final = 5.0
_MOST_BYTES: Final = 1 << 20
_BEARER: Final = HTTPBearer(scheme_name="token", auto_error=False)


class Keys:
    """The public keys of an OpenID provider; authorities in ``ca`` sign its certificate."""

    def __init__(
        self,
        issuer: str,
        ca: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._issuer = issuer
        self.trust = authorities("service.oidc.ca.location", ca)
        self._clock = clock
        self._transport = transport
        self._keys: Mapping[str, jwt.PyJWK] = {}
        self._queried_at = self._answered_at = -_KEPT_S
        self._error = ""
        self._task: asyncio.Task[None] | None = None

    async def key(self, key_id: str) -> jwt.PyJWK | None:
        """Return a key by its id; None if the provider does not have it.

        Keys are cached for minutes, then requested again in the background. While the provider does
        not answer, known keys stay valid; an unknown one raises UnavailableError.
        """
        is_known, age_s = key_id in self._keys, self._clock() - self._answered_at
        if not is_known or age_s > _KEPT_S:
            query = self._running_query()
            is_wanted = not is_known or (age_s > _STALE_S and not self._error)
            if query is not None and is_wanted:
                await asyncio.shield(query)  # other requests wait for it, too
        found = self._keys.get(key_id)
        if found is None and self._error:
            raise UnavailableError(self._error)
        return found

    def _running_query(self) -> asyncio.Task[None] | None:
        """Return the running request to the provider; start one unless the last is too recent."""
        if self._task is not None and not self._task.done():
            return self._task
        if self._clock() - self._queried_at <= _AGAIN_S:
            return None
        self._task = asyncio.create_task(self._query())
        return self._task

    async def _query(self) -> None:
        try:
            async with (
                asyncio.timeout(_TIMEOUT_S),
                httpx.AsyncClient(
                    verify=self.trust, transport=self._transport, trust_env=False
                ) as client,
            ):
                where = f"{self._issuer.rstrip('/')}/.well-known/openid-configuration"
                provider = await _json(client, where)
                if provider.get("issuer") != self._issuer:
                    raise ValueError(f"its issuer is {provider.get('issuer')!r}")  # noqa: TRY301
                keys = await _json(client, require_secure(str(provider.get("jwks_uri"))))
            self._keys = _public_keys(keys)
            self._answered_at, self._error = self._clock(), ""
        except (httpx.HTTPError, OSError, TimeoutError, ValueError, ConfigError) as error:
            why = str(error) or f"no answer within {_TIMEOUT_S:g} s"
            self._error = f"cannot read the keys of the OpenID provider {self._issuer}: {why}"
        finally:
            self._queried_at = self._clock()  # last, else a hanging one is queried without pause


async def _json(client: httpx.AsyncClient, url: str) -> dict[str, Any]:
    async with client.stream("GET", url) as response:
        if response.status_code != 200:
            raise ValueError(f"{url} answers {response.status_code}")
        body = await access.read_limited(response.aiter_bytes(), _MOST_BYTES)
    if body is None:
        raise ValueError(f"{url} answers with more than {_MOST_BYTES} bytes")
    found = httpx.Response(200, content=body).json()
    if not isinstance(found, dict):
        raise ValueError(f"{url} does not answer with an object")  # noqa: TRY004 -- a damaged answer
    return found


def _public_keys(answer: Mapping[str, Any]) -> dict[str, jwt.PyJWK]:
    """Read a key set; keys of unknown types are skipped."""
    listed = answer.get("keys")
    if not isinstance(listed, list):
        raise ValueError("its answer has no list of keys")  # noqa: TRY004 -- a damaged answer
    found: dict[str, jwt.PyJWK] = {}
    for each in listed:
        if (
            not isinstance(each, dict)
            or each.get("kty") == "oct"
            or each.get("use", "sig") != "sig"
        ):
            continue
        open_to_all = each.get("kty") == "RSA" and not each.get("alg")
        try:
            found[str(each.get("kid", ""))] = (_RsaKey if open_to_all else jwt.PyJWK)(each)
        except (jwt.PyJWTError, TypeError):
            continue
    return found


class _RsaKey(jwt.PyJWK):
    """An RSA key for which the provider does not name a signature algorithm."""

    def __init__(self, values: dict[str, Any]) -> None:
        super().__init__(values)
        self.by_algorithm = {name: jwt.PyJWK(values, name) for name in _RSA}


def require_secure(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOOPBACK):
        raise ConfigError(f"{url} is not https, so that keys could be replaced on the network")
    return url


def bearer_access(settings: AccessSettings, keys: Keys | None = None) -> access.Authenticator:
    issuer, audience = settings.oidc_issuer, settings.oidc_audience
    if not issuer or not audience:
        raise ConfigError(
            "service.auth = bearer needs service.oidc.issuer and service.oidc.audience"
        )
    require_secure(issuer)
    known = keys or Keys(issuer, settings.oidc_ca_location)

    async def identify(
        request: Request,
        given: HTTPAuthorizationCredentials | None = Depends(_BEARER),  # noqa: B008 -- FastAPI's way
    ) -> access.User:
        if given is None:
            raise _refusal("give a bearer token")
        try:
            claims = await _claims(given.credentials, known, settings)
        except jwt.PyJWTError as error:
            access.audit.warning("a token from %s is refused: %s", access.address(request), error)
            raise _refusal(f"the token is refused: {error}", "invalid_token") from None
        name = claims.get(settings.oidc_user_claim) or claims.get("sub")
        # At some providers users choose their names, but not their groups.
        return access.User(
            str(name), access.roles(settings, groups(claims, settings.oidc_roles_claim))
        )

    return identify


async def _claims(token: str, keys: Keys, settings: AccessSettings) -> dict[str, Any]:
    head = jwt.get_unverified_header(token)
    if head.get("alg") not in ALGORITHMS:
        raise jwt.InvalidAlgorithmError(f"algorithm {str(head.get('alg'))[:20]!r} is not allowed")
    key = await keys.key(str(head.get("kid", "")))
    if key is None:
        raise jwt.InvalidKeyError("the provider has no such key")
    if isinstance(key, _RsaKey):
        key = key.by_algorithm.get(head["alg"], key)
    if key.algorithm_name != head["alg"]:
        raise jwt.InvalidAlgorithmError("the key is for another algorithm")
    found: dict[str, Any] = jwt.decode(
        token,
        key,
        algorithms=ALGORITHMS,
        audience=settings.oidc_audience,
        issuer=settings.oidc_issuer,
        leeway=settings.oidc_leeway,
        options={"require": ["exp", "iss", "aud", "sub"]},
    )
    return found


def groups(claims: Mapping[str, Any], path: str) -> frozenset[str]:
    """Return the values of a claim; a string is split at blanks, as for ``scope``."""
    found: Any = claims
    for part in (path,) if path in claims else path.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    if isinstance(found, str):
        return frozenset(found.split())
    return frozenset(map(str, found)) if isinstance(found, list) else frozenset()


def _refusal(why: str, error: str = "") -> HTTPException:
    challenge = 'Bearer realm="srm"' + (f', error="{error}"' if error else "")
    return HTTPException(401, why, {"WWW-Authenticate": challenge})
