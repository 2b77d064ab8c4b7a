"""Settings of the connections to one cluster: librdkafka's properties in one frozen value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal

from srm.config.values import own_problem
from srm.errors import ConfigError

Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]

DEFAULT_CLIENT_ID: Final = "srm"
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_WITH_PASSWORD: Final[tuple[Mechanism, ...]] = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_TOKEN_OPTION: Final = re.compile(r"(\w+)=(\S*)")
_EXTENSION: Final = "extension_"
_LIBRDKAFKA_ALONE: Final = (
    "ssl.curves.list",
    "ssl.sigalgs.list",
    "ssl.engine.location",
    "ssl.engine.id",
    "ssl.providers",
)


@dataclass(frozen=True, slots=True)
class Tls:
    """Settings to verify the broker, and srm's own certificate: librdkafka's ``ssl.`` keys."""

    ca_location: str = ""
    ca_pem: str = ""
    crl_location: str = ""
    certificate_location: str = ""
    certificate_pem: str = ""
    key_location: str = ""
    key_pem: str = field(default="", repr=False)
    key_password: str = field(default="", repr=False)
    keystore_location: str = ""
    keystore_password: str = field(default="", repr=False)
    cipher_suites: str = ""
    verify_certificate: bool = True
    verify_hostname: bool = True


@dataclass(frozen=True, slots=True)
class OidcTokens:
    """A token endpoint that answers the client credentials grant (RFC 6749, 4.4)."""

    endpoint: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str = ""
    ca_location: str = ""
    ca_pem: str = ""


@dataclass(frozen=True, slots=True)
class UnsecuredTokens:
    """Tokens without a signature (RFC 7515, A.5), for tests; an empty ``scope`` is left out."""

    principal: str
    principal_claim: str = "sub"
    scope: tuple[str, ...] = ()
    scope_claim: str = "scope"
    lifetime_s: int = 3600


@dataclass(frozen=True, slots=True)
class Sasl:
    """Identity of srm: a name with a password, or a source of tokens with SASL extensions."""

    mechanism: Mechanism
    username: str = ""
    password: str = field(default="", repr=False)
    tokens: OidcTokens | UnsecuredTokens | None = None
    extensions: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Security:
    """Settings of all connections to one cluster.

    A broker that sends nothing for ``request_timeout_s`` while an answer is due is abandoned. So is
    one that cannot be connected to within ``connect_timeout_s``.
    """

    alias: str
    tls: Tls | None = None
    sasl: Sasl | None = None
    client_id: str = DEFAULT_CLIENT_ID
    request_timeout_s: float = 30.0
    connect_timeout_s: float = 10.0


def read_security(alias: str, properties: Mapping[str, str]) -> Security:
    """Read librdkafka's properties; files they name are not opened here."""
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        raise ConfigError(
            f"cluster {alias}: security.protocol: {protocol} is not one of {', '.join(_PROTOCOLS)}"
        )
    request_timeout_s = _seconds(alias, properties, "socket.timeout.ms", 30.0)
    connect_timeout_s = _seconds(alias, properties, "socket.connection.setup.timeout.ms", 10.0)
    tls, sasl = None, None
    with own_problem():
        tls = _tls(alias, properties) if protocol.endswith("SSL") else None
    with own_problem():
        sasl = _sasl(alias, properties) if protocol.startswith("SASL") else None
    return Security(
        alias,
        tls,
        sasl,
        properties.get("client.id") or DEFAULT_CLIENT_ID,
        request_timeout_s,
        min(connect_timeout_s, request_timeout_s),
    )


def _seconds(alias: str, properties: Mapping[str, str], name: str, default: float) -> float:
    value = properties.get(name)
    if value is None:
        return default
    if not value.isdecimal() or int(value) == 0:
        raise ConfigError(
            f"cluster {alias}: {name}: {value} is not a positive number of milliseconds"
        )
    return int(value) / 1000


def _is_true(properties: Mapping[str, str], name: str, *, default: bool) -> bool:
    value = properties.get(name)
    return default if value is None else value.lower() in {"true", "t", "1"}


def _tls(alias: str, properties: Mapping[str, str]) -> Tls:
    alone = [name for name in _LIBRDKAFKA_ALONE if properties.get(name)]
    if alone:
        raise ConfigError(
            f"cluster {alias}: {', '.join(alone)} cannot be applied to the connections that copy; "
            "remove it (OpenSSL's own configuration, $OPENSSL_CONF, holds for all connections)"
        )
    verifies = _is_true(properties, "enable.ssl.certificate.verification", default=True)
    identification = properties.get("ssl.endpoint.identification.algorithm", "https").lower()
    keys = {one.name: f"ssl.{one.name.replace('_', '.')}" for one in fields(Tls)}
    given: dict[str, Any] = {n: properties[key] for n, key in keys.items() if key in properties}
    given["verify_certificate"] = verifies
    given["verify_hostname"] = verifies and identification not in {"", "none"}
    return Tls(**given)


def _sasl(alias: str, properties: Mapping[str, str]) -> Sasl:
    given = properties.get("sasl.mechanisms") or properties.get("sasl.mechanism") or ""
    wanted = given.strip().upper()
    known = ", ".join((*_WITH_PASSWORD, "OAUTHBEARER"))
    if not wanted:
        raise ConfigError(
            f"cluster {alias}: sasl.mechanism is missing; security.protocol needs one of {known}"
        )
    if wanted == "GSSAPI":
        raise ConfigError(
            f"cluster {alias}: sasl.mechanism: GSSAPI (Kerberos) is not supported; use one of "
            f"{known} on a listener of its own"
        )
    if wanted == "OAUTHBEARER":
        return _bearer(alias, properties)
    mechanism = next((one for one in _WITH_PASSWORD if one == wanted), None)
    if mechanism is None:
        raise ConfigError(f"cluster {alias}: sasl.mechanism: {wanted} is not one of {known}")
    if "sasl.jaas.config" in properties:
        return Sasl(mechanism)  # its own problem is collected already
    username = _require(alias, properties, "sasl.username", mechanism)
    return Sasl(mechanism, username, _require(alias, properties, "sasl.password", mechanism))


def _require(alias: str, properties: Mapping[str, str], name: str, reason: str) -> str:
    value = properties.get(name, "")
    if not value:
        raise ConfigError(f"cluster {alias}: {name} is missing, {reason} needs it")
    return value


def _bearer(alias: str, properties: Mapping[str, str]) -> Sasl:
    prefix, get = "sasl.oauthbearer", properties.get
    if get(f"{prefix}.method", "").lower() == "oidc":
        method = f"{prefix}.method = oidc"
        tokens = OidcTokens(
            _require(alias, properties, f"{prefix}.token.endpoint.url", method),
            _require(alias, properties, f"{prefix}.client.id", method),
            _require(alias, properties, f"{prefix}.client.secret", method),
            get(f"{prefix}.scope", ""),
            get("https.ca.location", ""),
            get("https.ca.pem", ""),
        )
        extensions = _extensions(alias, get(f"{prefix}.extensions", ""))
        return Sasl("OAUTHBEARER", tokens=tokens, extensions=extensions)
    if _is_true(properties, "enable.sasl.oauthbearer.unsecure.jwt", default=False):
        return _parse_unsecured(alias, get(f"{prefix}.config", ""))
    raise ConfigError(
        f"cluster {alias}: OAUTHBEARER needs a source of tokens: {prefix}.method = oidc with "
        f"{prefix}.token.endpoint.url, {prefix}.client.id and {prefix}.client.secret"
    )


def _parse_unsecured(alias: str, config: str) -> Sasl:
    """Read librdkafka's notation: ``principal=admin scope=read,write extension_tenant=one``."""
    options = dict(_TOKEN_OPTION.findall(config))
    principal, lifetime = options.get("principal", ""), options.get("lifeSeconds", "3600")
    if not principal or not lifetime.isdecimal():
        raise ConfigError(
            f"cluster {alias}: sasl.oauthbearer.config is not of the form "
            "principal=<name> [scope=<one>,<other>] [lifeSeconds=<seconds>]"
        )
    tokens = UnsecuredTokens(
        principal,
        options.get("principalClaimName", "sub"),
        tuple(part for part in options.get("scope", "").split(",") if part),
        options.get("scopeClaimName", "scope"),
        int(lifetime),
    )
    extensions = tuple(
        (name.removeprefix(_EXTENSION), value)
        for name, value in options.items()
        if name.startswith(_EXTENSION)
    )
    return Sasl("OAUTHBEARER", tokens=tokens, extensions=extensions)


def _extensions(alias: str, text: str) -> tuple[tuple[str, str], ...]:
    pairs = [part.strip().partition("=") for part in text.split(",") if part.strip()]
    if any(not name or not equals for name, equals, _ in pairs):
        raise ConfigError(
            f"cluster {alias}: sasl.oauthbearer.extensions: {text!r} is not of the form "
            "name=value,name=value"
        )
    return tuple((name, value) for name, _, value in pairs)
