"""Authentication of users of a standalone service: none, passwords, certificates.

Passwords are in :mod:`srm.service.access.passwords`, bearer tokens in
:mod:`srm.service.access.tokens`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import Any, Final

from fastapi import HTTPException, Request

from srm.config.service import AccessSettings, ServiceSettings
from srm.errors import ConfigError
from srm.service.access.access import ANONYMOUS, Authenticator, User, roles
from srm.service.access.passwords import password_access
from srm.service.access.tls import PEER
from srm.service.access.tokens import bearer_access
from srm.service.access.users import UsersFile


def access_of(settings: ServiceSettings, host: str) -> Authenticator:
    """Return the authenticator of a standalone service.

    Args:
        settings: settings of the service.
        host: address that it listens on.

    Raises:
        ConfigError: the settings would admit any client, or a setting is missing.
    """
    return _KINDS[settings.access.auth](settings.access, host)


def _nobody(settings: AccessSettings, host: str) -> Authenticator:
    """Treat all clients as one user; allow only loopback unless ``service.insecure`` is set."""
    if not settings.insecure and not is_loopback(host):
        raise ConfigError(
            f"service.host = {host} is reachable remotely, and service.auth = none admits all of "
            "them: set service.auth (docs/service.md), or confirm with service.insecure = true"
        )

    def identify() -> User:
        return User(ANONYMOUS, roles(settings, {ANONYMOUS}))

    return Authenticator(identify)


def _passwords(settings: AccessSettings, _host: str) -> Authenticator:
    if settings.users_location is None:
        raise ConfigError(
            "service.auth = basic needs service.users.location, a file with lines that "
            "'srm-service password NAME' writes"
        )
    return password_access(settings, UsersFile(settings.users_location))


def _certificates(settings: AccessSettings, _host: str) -> Authenticator:
    """Identify users by the client certificate that the TLS handshake has already checked."""
    if settings.certificate_location is None or settings.ca_location is None:
        raise ConfigError(
            "service.auth = mtls needs service.ssl.certificate.location, service.ssl.key.location "
            "and service.ssl.ca.location"
        )

    def identify(request: Request) -> User:
        name = common_name(getattr(request.state, PEER, None) or {})
        if not name:
            raise HTTPException(401, "the certificate has no common name (CN)")
        return User(name, roles(settings, {name}))

    return Authenticator(identify)


def common_name(certificate: Mapping[str, Any]) -> str:
    """Return the last common name of the subject of a certificate in the form of ``ssl``."""
    named = [
        value
        for part in certificate.get("subject", ())
        for key, value in part
        if key == "commonName"
    ]
    return str(named[-1]) if named else ""


_KINDS: Final[Mapping[str, Callable[[AccessSettings, str], Authenticator]]] = {
    "none": _nobody,
    "basic": _passwords,
    "bearer": lambda settings, _host: bearer_access(settings),
    "mtls": _certificates,
}


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
