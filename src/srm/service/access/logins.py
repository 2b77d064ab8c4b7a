"""How users are known where the service stands alone: nobody, passwords, certificates.

Passwords are in :mod:`srm.service.access.passwords`, bearer tokens in
:mod:`srm.service.access.tokens`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from fastapi import HTTPException, Request

from srm.config.service import AccessSettings, ServiceSettings
from srm.errors import ConfigError
from srm.service.access.access import ANONYMOUS, Authenticator, User, roles
from srm.service.access.passwords import password_access
from srm.service.access.tls import PEER
from srm.service.access.tokens import bearer_access
from srm.service.access.users import UsersFile
from srm.service.federation.hosts import is_loopback


def access_of(settings: ServiceSettings, host: str) -> Authenticator:
    """Return what guards the routes of a service that stands alone.

    Args:
        settings: of the service.
        host: address that it listens on.

    Raises:
        ConfigError: the settings let in whoever reaches the service, or lack something.
    """
    return _KINDS[settings.access.auth](settings.access, host)


def _nobody(settings: AccessSettings, host: str) -> Authenticator:
    """Everybody is the same user; from this machine only, unless that is waived."""
    if not settings.insecure and not is_loopback(host):
        raise ConfigError(
            f"service.host = {host} is reached by others, and service.auth = none lets all of them "
            "in: set service.auth (docs/service.md), or confirm with service.insecure = true"
        )

    def identify() -> User:
        return User(ANONYMOUS, roles(settings, {ANONYMOUS}))

    return Authenticator(identify)


def _passwords(settings: AccessSettings, _host: str) -> Authenticator:
    if settings.users_location is None:
        raise ConfigError(
            "service.auth = basic needs service.users.location: a file with the lines that "
            "'srm-service password NAME' writes"
        )
    return password_access(settings, UsersFile(settings.users_location))


def _certificates(settings: AccessSettings, _host: str) -> Authenticator:
    """Who came in has shown a certificate: that is checked before the first byte of a request."""
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
    """Return the last common name of a certificate's subject, as Python's ssl module gives it."""
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
