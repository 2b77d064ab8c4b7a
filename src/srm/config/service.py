"""The settings of the SRM service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal, Self

from srm.config.secrets import Secret

AuthKind = Literal["none", "basic", "bearer", "mtls"]


@dataclass(frozen=True, slots=True)
class AccessSettings:
    """Access to the service, and what it shows of itself (:mod:`srm.config.keys.keys`)."""

    auth: AuthKind = "none"
    insecure: bool = False
    allowed_hosts: tuple[str, ...] = ()
    readers: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    users_location: Path | None = None
    oidc_issuer: str | None = None
    oidc_audience: str | None = None
    oidc_user_claim: str = "preferred_username"
    oidc_roles_claim: str = "roles"
    oidc_leeway: timedelta = timedelta(seconds=30)
    oidc_ca_location: Path | None = None
    certificate_location: Path | None = None
    key_location: Path | None = None
    key_password: Secret = field(default_factory=Secret, repr=False)
    ca_location: Path | None = None


@dataclass(frozen=True, slots=True)
class RemoteSettings:
    """Discovery and queries between services; see :mod:`srm.config.keys.keys`."""

    advertise: bool = False
    protocol: Literal["http", "https"] | None = None
    host: str | None = None
    port: int | None = None
    root_path: str | None = None
    replication_factor: int = -1
    enabled: bool = False
    hosts: tuple[str, ...] = ()
    timeout: timedelta = timedelta(seconds=3)
    username: str = ""
    password: Secret = field(default_factory=Secret, repr=False)
    ca_location: Path | None = None
    certificate_location: Path | None = None
    key_location: Path | None = None
    key_password: Secret = field(default_factory=Secret, repr=False)


_PARTS: Final[Mapping[str, type[Any]]] = {"access": AccessSettings, "remote": RemoteSettings}


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """Address and watched targets of the service; see :mod:`srm.config.keys.keys`."""

    host: str = "127.0.0.1"
    port: int = 6670
    root_path: str = ""
    targets: tuple[str, ...] = ()
    refresh: timedelta = timedelta(seconds=5)
    prometheus_topics: bool = True
    prometheus_groups: bool = True
    airflow_url: str = ""
    access: AccessSettings = field(default_factory=AccessSettings)
    remote: RemoteSettings = field(default_factory=RemoteSettings)

    @classmethod
    def of(cls, values: Mapping[str, Any], folder: Path) -> Self:
        """Build settings from values by attribute or ``part.attribute``, and files of a folder."""
        own = {name: value for name, value in values.items() if "." not in name}
        for part, made in _PARTS.items():
            own[part] = made(
                **{
                    attribute: _parse(attribute, value, folder)
                    for name, value in values.items()
                    for head, _, attribute in [name.partition(".")]
                    if head == part
                }
            )
        return cls(**own)


def _parse(attribute: str, value: Any, folder: Path) -> Any:
    if attribute.endswith("password"):
        return Secret(value)
    if attribute.endswith("_location"):
        return folder / Path(value).expanduser() if value else None
    return value
