"""TLS contexts made of a cluster's settings, and what TLS errors mean."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from srm.config.security import DEFAULT_SUITES, NO_TLS_1_3, ONLY_TLS_1_3
from srm.errors import AuthorizationError, ConfigError, SrmError, UnavailableError
from srm.kafka.wire.auth.security import Tls
from srm.kafka.wire.auth.security_keys import load_pem, load_store

_T = TypeVar("_T")

_NAME_MISMATCHES: Final = frozenset({62, 64})
"""OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH."""


def tls_context(alias: str, tls: Tls) -> ssl.SSLContext:
    """Make a context; reads the files that the settings name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = tls.verify_hostname
    context.verify_mode = ssl.CERT_REQUIRED if tls.verify_certificate else ssl.CERT_NONE
    _limit(context, alias, tls.cipher_suites)
    _load_authorities(context, alias, tls.ca_location, tls.ca_pem, "ssl.ca")
    if tls.crl_location:
        _reading(
            f"cluster {alias}: ssl.crl.location: {tls.crl_location}",
            lambda: context.load_verify_locations(tls.crl_location),
        )
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    _load_own_certificate(context, alias, tls)
    return context


def _limit(context: ssl.SSLContext, alias: str, suites: str) -> None:
    if suites == ONLY_TLS_1_3:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return
    words = suites.split(":")
    if not {*words} <= {"", DEFAULT_SUITES, NO_TLS_1_3}:
        _reading(f"cluster {alias}: ssl.cipher.suites", lambda: context.set_ciphers(suites))
    if NO_TLS_1_3 in words:
        context.maximum_version = ssl.TLSVersion.TLSv1_2


def authorities(alias: str, location: str, pem: str, key: str) -> ssl.SSLContext:
    """Make a context that trusts the given authorities, the system's where none are given."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _load_authorities(context, alias, location, pem, key)
    return context


def _load_authorities(
    context: ssl.SSLContext, alias: str, location: str, pem: str, key: str
) -> None:
    if location:
        is_folder = Path(location).is_dir()
        _reading(
            f"cluster {alias}: {key}.location: {location}",
            lambda: context.load_verify_locations(
                cafile=None if is_folder else location, capath=location if is_folder else None
            ),
        )
    if pem:
        _reading(f"cluster {alias}: {key}.pem", lambda: context.load_verify_locations(cadata=pem))
    if not location and not pem:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)


def _load_own_certificate(context: ssl.SSLContext, alias: str, tls: Tls) -> None:
    where = f"cluster {alias}: "
    if tls.keystore_location:
        where += f"ssl.keystore.location: {tls.keystore_location}"
        store = _reading(where, Path(tls.keystore_location).read_bytes)
        _reading(where, lambda: load_store(context, store, tls.keystore_password))
        return
    certificate = tls.certificate_location or tls.certificate_pem
    private_key = tls.key_location or tls.key_pem
    if not certificate and not private_key:
        return
    if not certificate or not private_key:
        missing = "ssl.key.location" if certificate else "ssl.certificate.location"
        raise ConfigError(
            f"{where}{missing} is missing: a certificate needs its key, and a key its certificate"
        )
    if tls.certificate_location and tls.key_location:
        where += f"ssl.certificate.location: {tls.certificate_location}, ssl.key.location: "
        _reading(
            where + tls.key_location,
            # Without the function OpenSSL would ask the terminal for the password.
            lambda: context.load_cert_chain(
                tls.certificate_location, tls.key_location, lambda: tls.key_password
            ),
        )
        return
    where += "ssl.certificate.pem, ssl.key.pem"
    chain = tls.certificate_pem.encode() or _file(where, tls.certificate_location)
    pem = tls.key_pem.encode() or _file(where, tls.key_location)
    _reading(where, lambda: load_pem(context, pem, tls.key_password, chain))


def _file(where: str, location: str) -> bytes:
    return _reading(f"{where}: {location}", Path(location).read_bytes)


def _reading(where: str, read: Callable[[], _T]) -> _T:
    """Turn what is wrong with a file or a text into one line."""
    try:
        return read()
    except ssl.SSLError as error:
        raise ConfigError(f"{where}: not usable: {_reason(error)}") from error
    except OSError as error:
        host = socket.gethostname()
        raise ConfigError(f"{where}: cannot be read on {host}: {error.strerror}") from error
    except (ValueError, TypeError) as error:
        reason = str(error).split(". ", maxsplit=1)[0].rstrip(".")
        raise ConfigError(f"{where}: not usable: {reason}") from error


def _reason(error: ssl.SSLError) -> str:
    """Return OpenSSL's reason; where it has none, a file is not PEM or its password is wrong."""
    return error.reason.replace("_", " ").lower() if error.reason else "no PEM, or a wrong password"


def tls_failure(where: str, error: OSError) -> SrmError:
    """Say what a TLS error means; ``where`` names the cluster and the broker."""
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = (error.verify_message or "").rstrip(".")
        if error.verify_code in _NAME_MISMATCHES:
            return ConfigError(
                f"{where}: {reason}: the address in bootstrap.servers or advertised.listeners is "
                "not in the broker's certificate",
                "see ssl.endpoint.identification.algorithm",
            )
        return ConfigError(
            f"{where}: the broker's certificate is not accepted: {reason}",
            "check ssl.ca.location (ssl.truststore.location)",
        )
    if not isinstance(error, ssl.SSLError) or isinstance(error, ssl.SSLEOFError):
        return UnavailableError(
            f"{where}: the broker closed the connection during the TLS handshake; if that stays "
            "so, its listener has no TLS",
            "check security.protocol",
        )
    reason = _reason(error)
    if "alert" in reason and ("certificate" in reason or "unknown ca" in reason):
        return AuthorizationError(
            f"{where}: the broker refuses srm's certificate ({reason})",
            "check ssl.certificate.location (ssl.keystore.location)",
        )
    if "wrong version number" in reason or "record layer" in reason or "http request" in reason:
        return ConfigError(f"{where}: the listener has no TLS", "check security.protocol")
    return ConfigError(
        f"{where}: TLS handshake failed: {reason}",
        "check security.protocol, ssl.enabled.protocols and ssl.cipher.suites",
    )
