"""Keys of who may come into the SRM service, and of services that ask each other."""

from __future__ import annotations

from typing import Final

from srm.config.config_key import ConfigKey, ValueKind


def _key(
    name: str,
    kind: ValueKind,
    default: str | None,
    doc: str,
    attribute: str,
    choices: tuple[str, ...] = (),
    synonyms: tuple[str, ...] = (),
) -> ConfigKey:
    return ConfigKey(
        name,
        kind,
        default,
        doc,
        origin="ours",
        scope="file",
        attribute=attribute,
        choices=choices,
        synonyms=synonyms,
    )


ACCESS_KEYS: Final = (
    _key(
        "service.auth",
        "choice",
        "none",
        "How users of the service are known: not at all, by name and password, by a bearer token "
        "of an OpenID provider, or by a certificate (docs/service-access.md). Inside Airflow it is "
        "Airflow that knows them.",
        "access.auth",
        choices=("none", "basic", "bearer", "mtls"),
    ),
    _key(
        "service.insecure",
        "boolean",
        "false",
        "With `service.auth = none`: serve whoever reaches it, on an address that others reach.",
        "access.insecure",
    ),
    _key(
        "service.allowed.hosts",
        "list",
        "",
        "Names under which `srm-service` answers, without port, such as `srm.example.org` or "
        "`*.example.org`, beside its own: `localhost`, its address and the announced one. Default: "
        "any, but only its own with `service.auth = none` on a loopback address "
        "(docs/service-access.md).",
        "access.allowed_hosts",
    ),
    _key(
        "service.readers",
        "list",
        "",
        "Users and groups that may see everything; default: every user that is known.",
        "access.readers",
    ),
    _key(
        "service.operators",
        "list",
        "",
        "Users and groups that may act: stop and restart the replicator, change lists. Default: "
        "nobody. With `service.auth = none` the user is `anonymous`.",
        "access.operators",
    ),
    _key(
        "service.users.location",
        "string",
        None,
        "File of users with hashed passwords, for `basic`; `srm-service password NAME` writes its "
        "lines. Changes count at once.",
        "access.users_location",
    ),
    _key(
        "service.oidc.issuer",
        "string",
        None,
        "For `bearer`: address of the OpenID provider, as in the claim `iss`.",
        "access.oidc_issuer",
    ),
    _key(
        "service.oidc.audience",
        "string",
        None,
        "For `bearer`: what the claim `aud` of a token has to name.",
        "access.oidc_audience",
    ),
    _key(
        "service.oidc.user.claim",
        "string",
        "preferred_username",
        "For `bearer`: the claim with the user's name, for logs; `sub` where there is none.",
        "access.oidc_user_claim",
    ),
    _key(
        "service.oidc.roles.claim",
        "string",
        "roles",
        "For `bearer`: the claim with the user's groups, which `service.readers` and "
        "`service.operators` name; where no claim has that name, dots go into objects: "
        "`realm_access.roles`.",
        "access.oidc_roles_claim",
    ),
    _key(
        "service.oidc.leeway.seconds",
        "seconds",
        "30",
        "For `bearer`: by how much clocks may differ.",
        "access.oidc_leeway",
    ),
    _key(
        "service.oidc.ca.location",
        "string",
        None,
        "For `bearer`: certificates (PEM) that the provider's is checked with; default: those of "
        "the system.",
        "access.oidc_ca_location",
    ),
    _key(
        "service.ssl.certificate.location",
        "string",
        None,
        "Certificate chain (PEM) that the service shows; with it the service speaks TLS only. "
        "A renewed file counts for new connections.",
        "access.certificate_location",
    ),
    _key(
        "service.ssl.key.location",
        "string",
        None,
        "Its private key (PEM).",
        "access.key_location",
    ),
    _key(
        "service.ssl.key.password",
        "string",
        "",
        "Password of that key, where it has one.",
        "access.key_password",
    ),
    _key(
        "service.ssl.ca.location",
        "string",
        None,
        "For `mtls`: certificates (PEM) that users' certificates are checked with. Whoever has one "
        "of theirs is let in, so name an authority of your own.",
        "access.ca_location",
    ),
)

REMOTE_KEYS: Final = (
    _key(
        "service.advertise",
        "boolean",
        "false",
        "Announce this service to others, in `srm-service-heartbeats.internal` on each cluster "
        "that it watches (docs/service-access.md).",
        "remote.advertise",
    ),
    _key(
        "service.advertised.protocol",
        "choice",
        None,
        "Announced protocol; default: `https` where the service speaks TLS.",
        "remote.protocol",
        choices=("http", "https"),
    ),
    _key(
        "service.advertised.host",
        "string",
        None,
        "Announced host; default: `service.host`, or the name of this machine.",
        "remote.host",
    ),
    _key(
        "service.advertised.port",
        "count",
        None,
        "Announced port; default: `service.port`.",
        "remote.port",
    ),
    _key(
        "service.advertised.root.path",
        "string",
        None,
        "Announced path before the routes; default: `service.root.path`.",
        "remote.root_path",
    ),
    _key(
        "service.advertised.topic.replication.factor",
        "replication factor",
        "-1",
        "Replicas of the topic of announcements; -1: the broker's default.",
        "remote.replication_factor",
        synonyms=(
            "streams.replication.manager.service.remote.advertisement.topic.replication.factor",
        ),
    ),
    _key(
        "service.remote.querying.enabled",
        "boolean",
        "false",
        "Answer for targets that other services watch, by asking those. It needs "
        "`service.remote.hosts` or `service.remote.ssl.ca.location`.",
        "remote.enabled",
    ),
    _key(
        "service.remote.hosts",
        "list",
        "",
        "Hosts that announced services are asked on, and get the credentials; `*` stands for any "
        "part of a name between two dots, behind the last one for a number. Default: those that "
        "show a certificate of `service.remote.ssl.ca.location`.",
        "remote.hosts",
    ),
    _key(
        "service.remote.timeout.seconds",
        "seconds",
        "3",
        "How long another service has to answer in all; then the answer is partial.",
        "remote.timeout",
    ),
    _key(
        "service.remote.username",
        "string",
        "",
        "User that this service is for others; default: the caller's own bearer token is passed "
        "on, where `service.auth = bearer`.",
        "remote.username",
    ),
    _key(
        "service.remote.password",
        "string",
        "",
        "Password of that user.",
        "remote.password",
    ),
    _key(
        "service.remote.ssl.ca.location",
        "string",
        None,
        "Certificates (PEM) that those of other services are checked with, which are asked by TLS "
        "only then; default: those of the system.",
        "remote.ca_location",
    ),
    _key(
        "service.remote.ssl.certificate.location",
        "string",
        None,
        "Certificate (PEM) that this service shows to others, where they ask for one.",
        "remote.certificate_location",
    ),
    _key(
        "service.remote.ssl.key.location",
        "string",
        None,
        "Its private key (PEM).",
        "remote.key_location",
    ),
    _key(
        "service.remote.ssl.key.password",
        "string",
        "",
        "Password of that key, where it has one.",
        "remote.key_password",
    ),
)
