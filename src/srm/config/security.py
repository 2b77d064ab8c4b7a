"""TLS and SASL settings in the notation of the Java clients, turned into librdkafka's."""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, TypeVar

from srm.config.stores import read_jks, read_trusted
from srm.errors import ConfigError

_T = TypeVar("_T")
_OPTION: Final = re.compile(r"""([\w.\-]+)\s*=\s*(?:"((?:\\.|[^"\\])*)"|'([^']*)'|([^\s;]+))""")
_MODULE: Final = re.compile(
    r"\s*(?:\w+\.)*(\w+)\s+(?:required|requisite|sufficient|optional)\b", re.IGNORECASE
)
_UNSECURED: Final = "unsecuredLogin"
_PEM_BREAK: Final = re.compile(r"\\n")
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
"""Characters that Java's tokenizer makes of letters after a backslash; others stay."""


_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
_OLD_VERSIONS: Final = ("SSLv2Hello", "SSLv3", "TLSv1", "TLSv1.1")
_SUITES_1_3: Final = {
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
}
"""OpenSSL's suites for TLSv1.3; the list of cipher suites applies to earlier versions only."""
_SUITE: Final = re.compile(r"(?:TLS|SSL)_(\w+)_WITH_(\w+)")
_EXCHANGES: Final = {"RSA": "", "DH_anon": "ADH-", "ECDH_anon": "AECDH-"}
ONLY_TLS_1_3: Final = "PSK-AES128-CBC-SHA:!TLSv1.2"
"""No cipher suite that srm could use with TLSv1.2: a list may not be empty, and has no keys."""
NO_TLS_1_3: Final = "!TLSv1.3"
"""A word for the connections that copy; OpenSSL skips words that it does not know."""
DEFAULT_SUITES: Final = "DEFAULT"


def translate_security(given: Mapping[str, str]) -> dict[str, str]:
    """Replace the settings that only the Java clients know; the others stay as they are.

    ``given`` is in the order of the deciding lines, weak to strong: a password that was set for one
    replication wins over the ``sasl.jaas.config`` of all clusters.
    """
    settings = dict(given)
    _translate_tls_limits(settings)
    _translate_keystore(settings)
    _translate_truststore(settings)
    _translate_jaas(settings)
    _translate_tokens(settings)
    if settings.get("ssl.endpoint.identification.algorithm") == "":
        settings["ssl.endpoint.identification.algorithm"] = "none"
    return settings


def describe_tls_limits(name: str, value: str) -> str:
    """Say which part of a setting of TLS versions or cipher suites OpenSSL cannot follow."""
    words = set(_words(value))
    if name == "ssl.cipher.suites" and words & _SUITES_1_3 and not words >= _SUITES_1_3:
        return (
            "OpenSSL offers all three suites of TLSv1.3 where one is listed; Ciphersuites in the "
            "file of $OPENSSL_CONF limits them"
        )
    without = name == "ssl.enabled.protocols" and "TLSv1.3" not in words
    if without or (name == "ssl.cipher.suites" and _is_java(words) and not words & _SUITES_1_3):
        return (
            "keeps TLSv1.3 from the connections that copy; librdkafka's take it where the broker "
            "has it, unless the file of $OPENSSL_CONF has MaxProtocol = TLSv1.2"
        )
    return ""


def _translate_tls_limits(settings: dict[str, str]) -> None:
    """Turn versions and cipher suites into one OpenSSL list, the limit that librdkafka has."""
    enabled = settings.pop("ssl.enabled.protocols", None)
    suites = _words(settings.pop("ssl.cipher.suites", ""))
    versions = set(_VERSIONS)
    if enabled is not None:
        named = _words(enabled)
        versions &= set(named)
        if not versions or not {*named} <= {*_VERSIONS, *_OLD_VERSIONS}:
            raise ConfigError(
                f"ssl.enabled.protocols: {enabled!r} has to name TLSv1.2, TLSv1.3 or both"
            )
    earlier = [_openssl_name(suite) for suite in suites if suite not in _SUITES_1_3]
    if _is_java(suites):
        versions -= {"TLSv1.2"} if not earlier else set()
        versions -= {"TLSv1.3"} if len(earlier) == len(suites) else set()
    if not versions:
        raise ConfigError(
            f"ssl.cipher.suites has no suite for {enabled or 'any version'}; add one, or change "
            "ssl.enabled.protocols"
        )
    if "TLSv1.2" not in versions:
        settings["ssl.cipher.suites"] = ONLY_TLS_1_3
    elif earlier or "TLSv1.3" not in versions:
        words = [*(earlier or [DEFAULT_SUITES]), *([] if "TLSv1.3" in versions else [NO_TLS_1_3])]
        settings["ssl.cipher.suites"] = ":".join(words)


def _words(text: str) -> list[str]:
    """Split a list of Java's (with commas) or OpenSSL's (with colons)."""
    return re.findall(r"[^,:\s]+", text)


def _is_java(suites: Iterable[str]) -> bool:
    """Return whether a list names suites in Java's notation, which applies to all TLS versions."""
    return any(suite.startswith(("TLS_", "SSL_")) for suite in suites)


def _openssl_name(suite: str) -> str:
    """Return OpenSSL's name of a cipher suite that may be written by its IANA name, as in Java."""
    name = suite
    if found := _SUITE.fullmatch(suite):
        cipher = re.sub(r"(AES|CAMELLIA)_(?=\d)|_CBC(?=_)", r"\1", found[2])
        cipher = cipher.replace("3DES_EDE", "DES_CBC3").replace("CCM_8", "CCM8")
        cipher = cipher.replace("POLY1305_SHA256", "POLY1305")
        name = _EXCHANGES.get(found[1], f"{found[1]}-") + cipher
        name = name.replace("_", "-")
    if not suite.startswith(("!", "+", "-", "@")):
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).set_ciphers(name)
        except ssl.SSLError:
            raise ConfigError(
                f"ssl.cipher.suites: OpenSSL has no suite {suite}; remove it from the list"
            ) from None
    return name


def _store_type(settings: dict[str, str], store: str) -> str:
    location = settings.get(f"ssl.{store}.location", "")
    suffix = location.rpartition(".")[2].lower()
    guessed = {"p12": "PKCS12", "pfx": "PKCS12", "pem": "PEM", "crt": "PEM"}.get(suffix, "JKS")
    return settings.pop(f"ssl.{store}.type", guessed).upper()


def _translate_keystore(settings: dict[str, str]) -> None:
    kind = _store_type(settings, "keystore")
    for java, ours in (
        ("ssl.keystore.key", "ssl.key.pem"),
        ("ssl.keystore.certificate.chain", "ssl.certificate.pem"),
    ):
        if java in settings:
            settings[ours] = _PEM_BREAK.sub("\n", settings.pop(java))
    location = settings.get("ssl.keystore.location")
    if location is None or kind == "PKCS12":
        return
    if kind == "PEM":
        del settings["ssl.keystore.location"]
        settings["ssl.key.location"] = settings["ssl.certificate.location"] = location
        return
    if kind != "JKS":
        raise ConfigError(f"ssl.keystore.type: {kind} is none of JKS, PKCS12, PEM")
    passwords = (settings.get(f"ssl.{name}.password", "") for name in ("keystore", "key"))
    store = _of_key("ssl.keystore.location", lambda: read_jks(location, *passwords))
    if store is None:
        return  # keytool writes PKCS12 under any name
    if not store.key:
        raise ConfigError(f"ssl.keystore.location: {location}: the store holds no key")
    for name in ("keystore.location", "keystore.password", "key.password"):
        settings.pop(f"ssl.{name}", None)
    settings["ssl.key.pem"], settings["ssl.certificate.pem"] = store.key, store.chain


def _translate_truststore(settings: dict[str, str]) -> None:
    kind = _store_type(settings, "truststore")
    password = settings.pop("ssl.truststore.password", "")
    if "ssl.truststore.certificates" in settings:
        pem = settings.pop("ssl.truststore.certificates")
        settings["ssl.ca.pem"] = _PEM_BREAK.sub("\n", pem)
    location = settings.pop("ssl.truststore.location", None)
    if location is None:
        return
    if kind == "PEM":
        settings["ssl.ca.location"] = location
    elif kind in {"JKS", "PKCS12"}:
        read = partial(read_trusted, location, password)
        settings["ssl.ca.pem"] = _of_key("ssl.truststore.location", read)
    else:
        raise ConfigError(f"ssl.truststore.type: {kind} is none of JKS, PKCS12, PEM")


def _of_key(key: str, read: Callable[[], _T]) -> _T:
    """Name the key of a store that cannot be read."""
    try:
        return read()
    except ConfigError as error:
        raise ConfigError(f"{key}: {error}") from error


def _translate_jaas(settings: dict[str, str]) -> None:
    names = list(settings)
    jaas = settings.pop("sasl.jaas.config", None)
    if jaas is None:
        return
    stronger = frozenset(names[names.index("sasl.jaas.config") :])
    named = _MODULE.match(jaas)
    module = named[1] if named else ""
    options = {
        name: _ESCAPED.sub(lambda found: _ESCAPES.get(found[1], found[1]), double) or single or bare
        for name, double, single, bare in _OPTION.findall(jaas)
    }
    translate = _LOGIN_MODULES.get(module)
    if translate is None:
        raise ConfigError(
            f"sasl.jaas.config: login module {module or '(none)'} has no equivalent here; known "
            f"are {', '.join(sorted(_LOGIN_MODULES))}"
        )
    translated = translate(options)
    settings.update({n: value for n, value in translated.items() if n not in stronger})


def _translate_tokens(settings: dict[str, str]) -> None:
    """Translate the settings of KIP-1139; a token endpoint says which grant is meant."""
    for name in ("client.id", "client.secret"):
        java = f"sasl.oauthbearer.client.credentials.{name}"
        if java in settings:
            settings[f"sasl.oauthbearer.{name}"] = settings.pop(java)
    if "sasl.oauthbearer.token.endpoint.url" in settings:
        settings.setdefault("sasl.oauthbearer.method", "oidc")


def _password(options: Mapping[str, str]) -> dict[str, str]:
    return _pick(options, {"username": "sasl.username", "password": "sasl.password"})


def _kerberos(options: Mapping[str, str]) -> dict[str, str]:
    names = {
        "keyTab": "sasl.kerberos.keytab",
        "principal": "sasl.kerberos.principal",
        "serviceName": "sasl.kerberos.service.name",
    }
    return _pick(options, names)


def _oauth(options: Mapping[str, str]) -> dict[str, str]:
    if any(name.startswith(_UNSECURED) for name in options):
        return _read_unsecured(options)
    names = {
        "clientId": "sasl.oauthbearer.client.id",
        "clientSecret": "sasl.oauthbearer.client.secret",
        "scope": "sasl.oauthbearer.scope",
    }
    settings = {"sasl.oauthbearer.method": "oidc", **_pick(options, names)}
    extensions = _with_prefix(options, "extension_")
    if extensions:
        pairs = ",".join(f"{name}={value}" for name, value in extensions.items())
        settings["sasl.oauthbearer.extensions"] = pairs
    return settings


def _read_unsecured(options: Mapping[str, str]) -> dict[str, str]:
    """Translate the login of KIP-255 that makes its own tokens, which is for tests."""
    claim = options.get(f"{_UNSECURED}PrincipalClaimName", "sub")
    config = {
        "principalClaimName": claim,
        "principal": options.get(f"{_UNSECURED}StringClaim_{claim}", ""),
        "lifeSeconds": options.get(f"{_UNSECURED}LifetimeSeconds", ""),
    }
    for name, value in _with_prefix(options, f"{_UNSECURED}Extension_").items():
        config[f"extension_{name}"] = value
    return {
        "enable.sasl.oauthbearer.unsecure.jwt": "true",
        "sasl.oauthbearer.config": " ".join(f"{n}={v}" for n, v in config.items() if v),
    }


def _with_prefix(options: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {n.removeprefix(prefix): value for n, value in options.items() if n.startswith(prefix)}


def _pick(options: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
    return {ours: options[java] for java, ours in names.items() if java in options}


_LOGIN_MODULES: Final[dict[str, Callable[[Mapping[str, str]], dict[str, str]]]] = {
    "PlainLoginModule": _password,
    "ScramLoginModule": _password,
    "Krb5LoginModule": _kerberos,
    "OAuthBearerLoginModule": _oauth,
}
