"""TLS and SASL settings: from the notation of the Java clients to librdkafka's, and back.

Key and trust stores are read when a process reads its configuration, since librdkafka reads no JKS.
Their contents stay in memory. JKS is the format of Sun's JavaKeyStore: entries, then a SHA-1 over
the password and all before it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import socket
import ssl
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from srm.config.values import at_place, own_problem
from srm.domain.text.amount import amount
from srm.errors import ConfigError
from srm.extras import library
from srm.files import user_path

if TYPE_CHECKING:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.serialization import pkcs12
else:
    serialization = library("cryptography.hazmat.primitives.serialization")
    pkcs12 = library("cryptography.hazmat.primitives.serialization.pkcs12")

_MAGIC: Final = b"\xfe\xed\xfe\xed"
_MIGHTY: Final = b"Mighty Aphrodite"
_SHA1_BYTES: Final = 20
_KEY, _CERTIFICATE = 1, 2
_LONG: Final = 0x80
_PROTECTED_BY_SUN: Final = bytes.fromhex("060a2b060104012a02110101")
"""Encoded 1.3.6.1.4.1.42.2.17.1.1."""


@dataclass(frozen=True, slots=True)
class JavaStore:
    """Contents of a store as PEM texts; ``key`` and its ``chain`` are empty if it has none."""

    certificates: str = ""
    key: str = ""
    chain: str = ""


def read_jks(location: str, password: str, key_password: str | None = None) -> JavaStore | None:
    """Read a store of the format JKS, None for another format, such as keytool's PKCS12.

    ``password``: of the store; empty to read it unchecked.
    ``key_password``: of its key, empty for that of the store; None to leave the key out.
    """
    return _jks(location, read_file(location), password, key_password)


def read_trusted(location: str, password: str) -> str:
    """Return the certificates of a trust store, of the format JKS or PKCS12, as PEM text."""
    content = read_file(location)
    store = _jks(location, content, password)
    found = _pkcs12(location, content, password) if store is None else store.certificates
    if not found:
        raise ConfigError(f"{location}: the store holds no trusted certificate")
    return found


def read_file(location: str) -> bytes:
    """Return the content of a file that a setting names."""
    try:
        return Path(location).read_bytes()
    except OSError as error:
        host = socket.gethostname()
        raise ConfigError(f"{location}: cannot be read on {host}: {error.strerror}") from error


def _jks(
    location: str, content: bytes, password: str, key_password: str | None = None
) -> JavaStore | None:
    if not content.startswith(_MAGIC):
        return None
    try:
        return _decode(content, password, key_password)
    except (ValueError, struct.error) as error:
        raise ConfigError(f"{location}: not usable as a JKS store: {error}") from None


def _pkcs12(location: str, content: bytes, password: str) -> str:
    try:
        store = pkcs12.load_pkcs12(content, password.encode() or None)
    except ValueError as error:
        reason = str(error).partition(".")[0]
        raise ConfigError(f"{location}: not usable as a PKCS12 store: {reason}") from None
    pem = serialization.Encoding.PEM
    return "".join(one.certificate.public_bytes(pem).decode() for one in store.additional_certs)


def _decode(content: bytes, password: str, key_password: str | None) -> JavaStore:
    body, digest = content[:-_SHA1_BYTES], content[-_SHA1_BYTES:]
    secret = password.encode("utf-16-be")
    expected = hashlib.sha1(secret + _MIGHTY + body).digest()  # noqa: S324 - the format's
    # Java and Kafka do not check a store without a password.
    if password and not hmac.compare_digest(expected, digest):
        raise ValueError("its password is wrong, or it is damaged")
    data = BytesIO(body[len(_MAGIC) :])
    version, count = _numbers(data, ">II")
    certificates, key, chain = "", "", ""
    for _ in range(count):
        tag, *_ = _numbers(data, ">I")
        _take(data, ">H")  # alias
        data.read(8)  # date
        if tag == _CERTIFICATE:
            certificates += _certificate(data, version)
        elif tag == _KEY:
            sealed, (length,) = _take(data, ">I"), _numbers(data, ">I")
            found = "".join(_certificate(data, version) for _ in range(length))
            if key_password is not None and not key:
                key, chain = _pem(_unseal(sealed, key_password or password)), found
        else:
            raise ValueError(f"it has an entry of the unknown type {tag}")
    return JavaStore(certificates, key, chain)


def _numbers(data: BytesIO, layout: str) -> tuple[int, ...]:
    return struct.unpack(layout, data.read(struct.calcsize(layout)))


def _take(data: BytesIO, layout: str) -> bytes:
    (size,) = _numbers(data, layout)
    if len(found := data.read(size)) < size:
        raise ValueError("it ends early")
    return found


def _certificate(data: BytesIO, version: int) -> str:
    if version > 1:
        _take(data, ">H")  # its type, X.509
    return ssl.DER_cert_to_PEM_cert(_take(data, ">I"))


def _pem(key: bytes) -> str:
    lines = base64.encodebytes(key).decode()
    return f"-----BEGIN PRIVATE KEY-----\n{lines}-----END PRIVATE KEY-----\n"


def _unseal(sealed: bytes, password: str) -> bytes:
    """Decrypt a key: XOR with a chain of SHA-1 over password and salt, then a check value."""
    algorithm, content = islice(_elements(next(_elements(sealed))), 2)
    if not algorithm.startswith(_PROTECTED_BY_SUN):
        raise ValueError("its key is protected by an unknown algorithm")
    secret = password.encode("utf-16-be")
    digest, encrypted, check = content[:20], content[20:-20], content[-20:]
    stream = b""
    while len(stream) < len(encrypted):
        digest = hashlib.sha1(secret + digest).digest()  # noqa: S324 - the format's
        stream += digest
    key = bytes(a ^ b for a, b in zip(encrypted, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + key).digest(), check):  # noqa: S324 - the format's
        raise ValueError("the password of its key (ssl.key.password) is wrong")
    return key


def _elements(der: bytes) -> Iterator[bytes]:
    data = BytesIO(der)
    while tag := data.read(1):
        size, *_ = _numbers(data, ">B")
        if size & _LONG:
            size = int.from_bytes(data.read(size - _LONG))
        if data.tell() + size > len(der):
            raise ValueError(f"its element {tag.hex()} ends early")
        yield data.read(size)


_OPTION: Final = re.compile(r"""([\w.\-]+)\s*=\s*(?:"((?:\\.|[^"\\])*)"|'([^']*)'|([^\s;]+))""")
_MODULE: Final = re.compile(
    r"\s*(?:\w+\.)*(\w+)\s+(?:required|requisite|sufficient|optional)\b", re.IGNORECASE
)
_UNSECURED: Final = "unsecuredLogin"
_HASHED: Final = re.compile(r"[0-9a-f]{8}\.\d+")
_CERTIFICATE_PEM: Final = re.compile(
    "-----BEGIN (?:X509 )?CERTIFICATE-----[^-]+-----END (?:X509 )?CERTIFICATE-----"
)
_PEM: Final = re.compile(
    r"(-----BEGIN [A-Z0-9 ]+-----)([A-Za-z0-9+/=\s]+)(-----END [A-Z0-9 ]+-----)\s*"
)
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
    for translate in (_translate_tls_limits, _translate_keystore, _translate_truststore):
        with own_problem():
            translate(settings)
    for prefix in ("ssl.ca", "https.ca"):
        location = settings.get(f"{prefix}.location", "")
        is_store = prefix == "ssl.ca" and "ssl.ca.location" not in given
        with own_problem(), at_place(f"{'ssl.truststore' if is_store else prefix}.location"):
            if (pem := read_authorities(location)) is not None:
                del settings[f"{prefix}.location"]
                settings[f"{prefix}.pem"] = settings.get(f"{prefix}.pem", "") + pem
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
            "disables TLSv1.3 for the connections that copy; librdkafka's use it if the broker "
            "supports it, unless the file of $OPENSSL_CONF has MaxProtocol = TLSv1.2"
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
            with own_problem():
                raise ConfigError(
                    f"ssl.enabled.protocols: {enabled!r} must name TLSv1.2, TLSv1.3 or both"
                )
            versions = set(_VERSIONS)
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
            with own_problem():
                raise ConfigError(
                    f"ssl.cipher.suites: OpenSSL has no suite {suite}; remove it from the list"
                ) from None
    return name


def _store_type(settings: dict[str, str], store: str) -> str:
    location = settings.get(f"ssl.{store}.location", "")
    suffix = location.rpartition(".")[2].lower()
    usual = "PEM" if location and Path(location).is_dir() else "JKS"
    guessed = {"p12": "PKCS12", "pfx": "PKCS12", "pem": "PEM", "crt": "PEM"}.get(suffix, usual)
    return settings.pop(f"ssl.{store}.type", guessed).upper()


def _translate_keystore(settings: dict[str, str]) -> None:
    kind = _store_type(settings, "keystore")
    for java, ours in (
        ("ssl.keystore.key", "ssl.key.pem"),
        ("ssl.keystore.certificate.chain", "ssl.certificate.pem"),
    ):
        if java in settings:
            settings[ours] = _pem_text(settings.pop(java))
    location = settings.get("ssl.keystore.location")
    if location is None or kind == "PKCS12":
        return
    if kind == "PEM":
        del settings["ssl.keystore.location"]
        settings["ssl.key.location"] = settings["ssl.certificate.location"] = location
        return
    if kind != "JKS":
        raise ConfigError(f"ssl.keystore.type: {kind} is not one of JKS, PKCS12, PEM")
    passwords = (settings.get(f"ssl.{name}.password", "") for name in ("keystore", "key"))
    with at_place("ssl.keystore.location"):
        store = read_jks(location, *passwords)
    if store is None:
        return  # keytool writes PKCS12 under any name
    if not store.key:
        raise ConfigError(f"ssl.keystore.location: {location}: the store holds no key")
    for name in ("keystore.location", "keystore.password", "key.password"):
        settings.pop(f"ssl.{name}", None)
    settings["ssl.key.pem"], settings["ssl.certificate.pem"] = store.key, store.chain


def _pem_text(value: str) -> str:
    r"""Return PEM text with its line ends; Kafka also takes blanks and ``\n`` for them."""

    def lines(found: re.Match[str]) -> str:
        body = re.findall(".{1,64}", "".join(found[2].split()))
        return "\n".join((found[1], *body, found[3], ""))

    return _PEM.sub(lines, value.replace("\\n", "\n"))


def _translate_truststore(settings: dict[str, str]) -> None:
    kind = _store_type(settings, "truststore")
    password = settings.pop("ssl.truststore.password", "")
    if "ssl.truststore.certificates" in settings:
        settings["ssl.ca.pem"] = _pem_text(settings.pop("ssl.truststore.certificates"))
    location = settings.pop("ssl.truststore.location", None)
    if location is None:
        return
    if kind == "PEM":
        settings["ssl.ca.location"] = location
    elif kind in {"JKS", "PKCS12"}:
        with at_place("ssl.truststore.location"):
            settings["ssl.ca.pem"] = read_trusted(location, password)
    else:
        raise ConfigError(f"ssl.truststore.type: {kind} is not one of JKS, PKCS12, PEM")


def names_several(location: str) -> bool:
    """Return whether a location is a list, a glob or a folder, but not one that OpenSSL reads.

    OpenSSL reads folders that ``openssl rehash`` has made.
    """
    if location and Path(location).exists():
        found = Path(location)
        return found.is_dir() and not any(_HASHED.fullmatch(one.name) for one in found.iterdir())
    return any(sign in location for sign in ",*?[")


def read_authorities(location: str) -> str | None:
    """Return the certificates of a list of files, globs and folders as one text; None for one file.

    Other files of a folder are skipped.
    """
    if not names_several(location):
        return None
    found = dict[str, None]()
    for part in filter(None, map(str.strip, location.split(","))):
        path = user_path(part)
        files = sorted(one for one in path.iterdir() if one.is_file()) if path.is_dir() else []
        if not path.is_dir():
            files = [path] if path.exists() else sorted(path.parent.glob(path.name)) or [path]
        texts = [read_file(str(one)).decode("latin-1") for one in files]
        certificates = _CERTIFICATE_PEM.findall("\n".join(texts))
        if not certificates:
            where = f"folder with {amount(len(files), 'file')}" if path.is_dir() else "file"
            raise ConfigError(
                f"{part}: {where}, without a certificate (PEM, -----BEGIN CERTIFICATE-----); put "
                "one there, or name files such as *.crt"
            )
        found |= dict.fromkeys(certificates)
    return "\n".join(found) + "\n"


def trust(context: ssl.SSLContext, location: str) -> None:
    """Let a context trust the authorities of a file, or of the files that a location names."""
    if (pem := read_authorities(location)) is not None:
        context.load_verify_locations(cadata=pem)
    elif Path(location).is_dir():
        context.load_verify_locations(capath=location)
    else:
        context.load_verify_locations(location)


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
    names_of = _LOGIN_MODULES.get(module)
    if names_of is None:
        with own_problem():
            raise ConfigError(
                f"sasl.jaas.config: login module {module or '(none)'} has no equivalent here; "
                f"known are {', '.join(sorted(_LOGIN_MODULES))}"
            )
        settings["sasl.jaas.config"] = jaas  # collected: the login is not missing, but unknown
        return
    translated = {ours: options[java] for java, ours in names_of.items() if java in options}
    if names_of is _OAUTH:
        translated = _translate_oauth(options, translated)
    settings.update({n: value for n, value in translated.items() if n not in stronger})


def _translate_tokens(settings: dict[str, str]) -> None:
    """Translate the settings of KIP-1139; a token endpoint says which grant is meant."""
    for name in ("client.id", "client.secret"):
        java = f"sasl.oauthbearer.client.credentials.{name}"
        if java in settings:
            settings[f"sasl.oauthbearer.{name}"] = settings.pop(java)
    if "sasl.oauthbearer.token.endpoint.url" in settings:
        settings.setdefault("sasl.oauthbearer.method", "oidc")


def _translate_oauth(options: Mapping[str, str], named: Mapping[str, str]) -> dict[str, str]:
    if any(name.startswith(_UNSECURED) for name in options):
        return _read_unsecured(options)
    settings = {"sasl.oauthbearer.method": "oidc", **named}
    if extensions := _with_prefix(options, "extension_"):
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


_PASSWORD: Final = {"username": "sasl.username", "password": "sasl.password"}
_OAUTH: Final = {
    "clientId": "sasl.oauthbearer.client.id",
    "clientSecret": "sasl.oauthbearer.client.secret",
    "scope": "sasl.oauthbearer.scope",
}
_LOGIN_MODULES: Final[Mapping[str, Mapping[str, str]]] = {
    "PlainLoginModule": _PASSWORD,
    "ScramLoginModule": _PASSWORD,
    "Krb5LoginModule": {
        "keyTab": "sasl.kerberos.keytab",
        "principal": "sasl.kerberos.principal",
        "serviceName": "sasl.kerberos.service.name",
    },
    "OAuthBearerLoginModule": _OAUTH,
}
"""librdkafka's settings by login module and option."""
_ALIKE: Final = (
    *("bootstrap.servers", "client.dns.lookup", "sasl.kerberos.service.name"),
    *("sasl.oauthbearer.token.endpoint.url", "ssl.key.password", "ssl.keystore.location"),
    "ssl.keystore.password",
)
_LOGIN: Final = "org.apache.kafka.common.security"
_TOKENS: Final = f"{_LOGIN}.oauthbearer.OAuthBearerLoginCallbackHandler"


def java_settings(settings: Mapping[str, str], read: Callable[[str], str]) -> dict[str, str]:
    """Return librdkafka's settings as a Java client takes them; ``read`` returns a file's text."""
    java = {name: settings[name] for name in _ALIKE if name in settings}
    if protocol := settings.get("security.protocol"):
        java["security.protocol"] = protocol.upper()
    if (verify := settings.get("ssl.endpoint.identification.algorithm")) is not None:
        java["ssl.endpoint.identification.algorithm"] = "" if verify == "none" else verify
    for kind, ours in (("certificates", "ssl.ca.pem"), ("location", "ssl.ca.location")):
        if ours in settings and "ssl.truststore.type" not in java:
            java |= {"ssl.truststore.type": "PEM", f"ssl.truststore.{kind}": settings[ours]}
    java |= _keystore(settings, read)
    java |= _login(settings)
    return java


def _keystore(settings: Mapping[str, str], read: Callable[[str], str]) -> dict[str, str]:
    if "ssl.keystore.location" in settings:
        return {"ssl.keystore.type": "PKCS12"}
    key, certificate = settings.get("ssl.key.location"), settings.get("ssl.certificate.location")
    if key is not None and key == certificate:
        return {"ssl.keystore.type": "PEM", "ssl.keystore.location": key}
    key_text = settings.get("ssl.key.pem") or (read(key) if key else None)
    chain = settings.get("ssl.certificate.pem") or (read(certificate) if certificate else None)
    if key_text is None or chain is None:
        return {}
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": key_text,
        "ssl.keystore.certificate.chain": chain,
    }


def _login(settings: Mapping[str, str]) -> dict[str, str]:
    mechanism = settings.get("sasl.mechanism", settings.get("sasl.mechanisms", ""))
    if not mechanism:
        return {}
    java = {"sasl.mechanism": mechanism}
    if mechanism == "OAUTHBEARER":
        options = {java: settings[name] for java, name in _OAUTH.items() if name in settings}
        pairs = settings.get("sasl.oauthbearer.extensions", "").split(",")
        options |= {
            f"extension_{n}": v for n, found, v in (p.partition("=") for p in pairs) if found
        }
        java["sasl.login.callback.handler.class"] = _TOKENS
        java["sasl.jaas.config"] = _jaas("oauthbearer.OAuthBearerLoginModule", options)
    elif "sasl.username" in settings:
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        login = {name: settings.get(f"sasl.{name}", "") for name in ("username", "password")}
        java["sasl.jaas.config"] = _jaas(module, login)
    return java


def _jaas(module: str, options: Mapping[str, str]) -> str:
    given = "".join(f" {name}={_quote(value)}" for name, value in options.items())
    return f"{_LOGIN}.{module} required{given};"


def _quote(value: str) -> str:
    text = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'
