"""Keys of who may come into the SRM service, and of services that ask each other."""

from __future__ import annotations

from typing import Final

from srm.config.keys.config_key import our_file_key

ACCESS_KEYS: Final = (
    our_file_key(
        "service.auth",
        "choice",
        "none",
        "How users of the service are known: not at all, by name and password, by a bearer token "
        "of an OpenID provider, or by a certificate (docs/service.md). Inside Airflow it is "
        "Airflow that knows them.",
        attribute="access.auth",
        choices=("none", "basic", "bearer", "mtls"),
    ),
    our_file_key(
        "service.insecure",
        "boolean",
        "false",
        "With `service.auth = none`: serve all clients, on an address that other hosts reach.",
        attribute="access.insecure",
    ),
    our_file_key(
        "service.allowed.hosts",
        "list",
        "",
        "Host names that `srm-service` accepts, without port, such as `srm.example.org` or "
        "`*.example.org`, in addition to `localhost`, its address and the announced one. Default: "
        "any; with `service.auth = none` on a loopback address only the three above "
        "(docs/service.md).",
        attribute="access.allowed_hosts",
    ),
    our_file_key(
        "service.readers",
        "list",
        "",
        "Users and groups that may see everything; default: every user that is known.",
        attribute="access.readers",
    ),
    our_file_key(
        "service.operators",
        "list",
        "",
        "Users and groups that may act: stop and restart the replicator, change lists. Default: "
        "none. With `service.auth = none` the user is `anonymous`.",
        attribute="access.operators",
    ),
    our_file_key(
        "service.users.location",
        "string",
        None,
        "File of users with hashed passwords, for `basic`; `srm-service password NAME` writes its "
        "lines. Changes count at once.",
        attribute="access.users_location",
    ),
    our_file_key(
        "service.oidc.issuer",
        "string",
        None,
        "For `bearer`: address of the OpenID provider, as in the claim `iss`.",
        attribute="access.oidc_issuer",
    ),
    our_file_key(
        "service.oidc.audience",
        "string",
        None,
        "For `bearer`: what the claim `aud` of a token has to name.",
        attribute="access.oidc_audience",
    ),
    our_file_key(
        "service.oidc.user.claim",
        "string",
        "preferred_username",
        "For `bearer`: the claim with the user's name, for logs; `sub` where there is none.",
        attribute="access.oidc_user_claim",
    ),
    our_file_key(
        "service.oidc.roles.claim",
        "string",
        "roles",
        "For `bearer`: the claim with the user's groups, which `service.readers` and "
        "`service.operators` name; where no claim has that name, dots go into objects: "
        "`realm_access.roles`.",
        attribute="access.oidc_roles_claim",
    ),
    our_file_key(
        "service.oidc.leeway.seconds",
        "seconds",
        "30",
        "For `bearer`: by how much clocks may differ.",
        attribute="access.oidc_leeway",
    ),
    our_file_key(
        "service.oidc.ca.location",
        "string",
        None,
        "For `bearer`: certificates (PEM) that the provider's is checked with; default: those of "
        "the system.",
        attribute="access.oidc_ca_location",
    ),
    our_file_key(
        "service.ssl.certificate.location",
        "string",
        None,
        "Certificate chain (PEM) that the service shows; with it the service speaks TLS only. "
        "A renewed file counts for new connections.",
        attribute="access.certificate_location",
    ),
    our_file_key(
        "service.ssl.key.location",
        "string",
        None,
        "Its private key (PEM).",
        attribute="access.key_location",
    ),
    our_file_key(
        "service.ssl.key.password",
        "string",
        "",
        "Password of that key, where it has one.",
        attribute="access.key_password",
    ),
    our_file_key(
        "service.ssl.ca.location",
        "string",
        None,
        "For `mtls`: CA certificates (PEM) that verify users' certificates. Every holder of a "
        "certificate of these CAs may sign in, so name a CA of your own.",
        attribute="access.ca_location",
    ),
)

REMOTE_KEYS: Final = (
    our_file_key(
        "service.advertise",
        "boolean",
        "false",
        "Announce this service to others, in `__srm-services` on each cluster "
        "that it watches (docs/service.md).",
        attribute="remote.advertise",
    ),
    our_file_key(
        "service.advertised.protocol",
        "choice",
        None,
        "Announced protocol; default: `https` where the service speaks TLS.",
        attribute="remote.protocol",
        choices=("http", "https"),
    ),
    our_file_key(
        "service.advertised.host",
        "string",
        None,
        "Announced host; default: `service.host`, or the name of this machine.",
        attribute="remote.host",
    ),
    our_file_key(
        "service.advertised.port",
        "count",
        None,
        "Announced port; default: `service.port`.",
        attribute="remote.port",
    ),
    our_file_key(
        "service.advertised.root.path",
        "string",
        None,
        "Announced path before the routes; default: `service.root.path`.",
        attribute="remote.root_path",
    ),
    our_file_key(
        "service.advertised.topic.replication.factor",
        "replication factor",
        "-1",
        "Replicas of the topic of announcements; -1: the broker's default.",
        attribute="remote.replication_factor",
        synonyms=(
            "streams.replication.manager.service.remote.advertisement.topic.replication.factor",
        ),
    ),
    our_file_key(
        "service.remote.querying.enabled",
        "boolean",
        "false",
        "Answer for targets that other services watch, by querying those services. It needs "
        "`service.remote.hosts` or `service.remote.ssl.ca.location`.",
        attribute="remote.enabled",
    ),
    our_file_key(
        "service.remote.hosts",
        "list",
        "",
        "Hosts of announced services that are queried and receive the credentials. `*` is any part "
        "of a name between two dots, after the last one a number. Default: those that show a "
        "certificate of `service.remote.ssl.ca.location`.",
        attribute="remote.hosts",
    ),
    our_file_key(
        "service.remote.timeout.seconds",
        "seconds",
        "3",
        "How long another service has to answer in all; then the answer is partial.",
        attribute="remote.timeout",
    ),
    our_file_key(
        "service.remote.username",
        "string",
        "",
        "User that this service is for others; default: the caller's own bearer token is passed "
        "on, where `service.auth = bearer`.",
        attribute="remote.username",
    ),
    our_file_key(
        "service.remote.password",
        "string",
        "",
        "Password of that user.",
        attribute="remote.password",
    ),
    our_file_key(
        "service.remote.ssl.ca.location",
        "string",
        None,
        "Certificates (PEM) that verify those of other services, which are queried by TLS only "
        "then; default: those of the system.",
        attribute="remote.ca_location",
    ),
    our_file_key(
        "service.remote.ssl.certificate.location",
        "string",
        None,
        "Certificate (PEM) that this service shows to others, where they ask for one.",
        attribute="remote.certificate_location",
    ),
    our_file_key(
        "service.remote.ssl.key.location",
        "string",
        None,
        "Its private key (PEM).",
        attribute="remote.key_location",
    ),
    our_file_key(
        "service.remote.ssl.key.password",
        "string",
        "",
        "Password of that key, where it has one.",
        attribute="remote.key_password",
    ),
)
