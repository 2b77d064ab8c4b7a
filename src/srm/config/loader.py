"""From one properties file to :class:`srm.config.model.Config`."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from itertools import combinations, permutations
from pathlib import Path
from typing import Any, Final, cast, get_args
from urllib.parse import urlsplit

from srm import logs
from srm.config import keys, model, properties, values
from srm.config.lines import (
    Level,
    Resolved,
    Setting,
    check_settings,
    classify,
    idle_logins,
    resolve_client,
    resolve_key,
)
from srm.config.security import names_several, read_file, translate_security
from srm.domain.moves.routing import ROUTING_ALONE, in_order
from srm.domain.names.flow_topics import FlowTopics
from srm.domain.names.policy import NameFilter, ReplicationPolicy, split_patterns
from srm.domain.names.record_headers import RecordSettings, parse_overrides
from srm.domain.names.topics import Flow
from srm.errors import ConfigError, SrmError
from srm.files import is_file, user_path

logger = logging.getLogger(__name__)

CONFIG_VARIABLE: Final = "SRM_CONFIG"
DEFAULT_FILE: Final = "srm.properties"
_ALIAS: Final = re.compile(r"[A-Za-z0-9_\-]+")
_NAMING: Final = re.compile(rf"({_ALIAS.pattern})(?:\.bootstrap\.servers|->({_ALIAS.pattern})\..+)")
"""Keys that name clusters."""
_RESERVED: Final = frozenset(
    {"workers", "connectors", "consumer", "producer", "admin", "stack", "service", "spark"}
)
_LONGEST_MS: Final = 300_000
"""Upper limit of librdkafka's socket.timeout.ms."""
_STORES: Final = ("ssl.keystore.", "ssl.truststore.")
_FLOW_FIELDS: Final = frozenset(field.name for field in fields(model.FlowConfig))
_REPORT_KEY: Final = "report.signing.key.location"
_POLICY: Final = "replication.policy.class"
_SERVER: Final = re.compile(r"(?:\w+://)?(\[[0-9a-fA-F:.%]+\]|[^:/\s]+):(\d{1,5})")


@dataclass(frozen=True)
class SettingsFile:
    """A properties file whose lines were understood; one of the ``warnings`` lists unknown keys.

    ``literal``: those of values that are used as written, though they look like references.
    """

    path: str
    clusters: tuple[str, ...]
    settings: tuple[Setting, ...]
    warnings: tuple[str, ...]
    unknown: int = 0
    literal: tuple[str, ...] = ()

    @property
    def flows(self) -> tuple[Flow, ...]:
        """Every ordered pair of clusters."""
        return tuple(Flow(*pair) for pair in permutations(self.clusters, 2))

    def resolve(self, name: str, flow: Flow | None = None) -> Resolved:
        return resolve_key(keys.KEYS[name], flow, self.settings)

    def at(self, resolved: Resolved, flow: Flow | None = None) -> AbstractContextManager[None]:
        """Begin an error with the line that decides a value; of a default, with the flow."""
        decided = resolved.trace[-1]
        if not decided.line and flow is not None:
            return values.at_place(self.path, flow, decided.key)
        line = properties.Property(decided.key, decided.value, decided.line)
        return values.at_place(line.at(self.path), decided.key)

    def value(self, name: str, flow: Flow | None = None) -> Any:
        """Return the value of a key in its type, None where it has none."""
        resolved = self.resolve(name, flow)
        if resolved.value is None:
            return None
        with self.at(resolved):
            return values.parse_value(keys.KEYS[name], resolved.value)


def find_config(path: Path | str | None = None) -> Path:
    """Return the file to read: the given one, else $SRM_CONFIG, else ./srm.properties."""
    file = user_path(path or _default_file())
    if not is_file(file):
        raise ConfigError(
            f"no properties file at {file}: name one with --config or ${CONFIG_VARIABLE}, or write "
            f"{DEFAULT_FILE} with srm init"
        )
    return file


def _default_file() -> str:
    return os.environ.get(CONFIG_VARIABLE) or DEFAULT_FILE


def file_to_name(path: str) -> str:
    """Return the path that commands have to name, empty if :func:`find_config` finds its file."""
    return "" if Path(path).absolute() == user_path(_default_file()).absolute() else path


def load_config(
    path: Path | str | None = None,
    overrides: Mapping[str, str] | None = None,
    connections: properties.Connections | None = None,
) -> model.Config:
    """Read and resolve a properties file; ``overrides`` replace lines of the same key.

    ``connections`` reads connections of Airflow in another way than this process does. Key and
    trust stores are then not read: their passwords may be among those.

    From then on the process logs as the file says, once how many keys are unknown. ConfigError is
    one line that says which key, on which line of which file, and what to do.
    """
    file = read_settings(path, overrides, connections=connections)
    config = build_config(file, stores=connections is None)
    logs.prefer(config.log_format)
    if file.unknown:
        _warn_of_unknown(file.path, file.unknown)
    for text in file.literal:
        _warn(text)
    return config


@cache
def _warn(text: str) -> None:
    logger.warning("%s", text)


@cache
def _warn_of_unknown(path: str, unknown: int) -> None:
    logger.warning(
        "%s: %d of its keys %s unknown and without effect: srm config check lists them",
        *(path, unknown, "is" if unknown == 1 else "are"),
    )


def read_settings(
    path: Path | str | None = None,
    overrides: Mapping[str, str] | None = None,
    *,
    strict: bool = False,
    connections: properties.Connections | None = None,
) -> SettingsFile:
    """Read a properties file and understand each line, without building a Config.

    With ``strict`` every unknown key is an error, else only one that nearly is one of srm's.
    """
    file = find_config(path)
    lines = properties.with_overrides(properties.read_properties(file), overrides)
    resolved = properties.resolve_references(lines, str(file), connections)
    return understand(resolved, str(file), strict=strict)


def understand(
    lines: Iterable[properties.Property], path: str, *, strict: bool = False
) -> SettingsFile:
    """Classify lines that were read from ``path``; for the others see :func:`read_settings`."""
    lines = tuple(lines)
    clusters = _clusters(lines, path)
    classified = [(line, classify(line, clusters)) for line in lines]
    mistakes, warnings, unknown = check_settings(classified, clusters, path, strict=strict)
    settings = tuple(setting for _, setting in classified if setting is not None)
    literal = tuple(properties.literal_warnings(lines, path))
    warnings += tuple(idle_logins(settings, clusters, path))
    values.own_problems((*mistakes, *(literal if strict else ())))
    return SettingsFile(path, clusters, settings, (*literal, *warnings), unknown, literal)


def build_config(file: SettingsFile, *, stores: bool = True) -> model.Config:
    """Resolve every value of an understood file.

    ``stores``: also read the key and trust stores, which another host or user may have.
    """
    clients = _clients(file, file.clusters, stores=stores)
    _check_addresses(file)
    for flow in file.flows:
        own = _clients(file, (flow.source, flow.target), flow, stores=stores)
        clients |= {at: client for at, client in own.items() if client != clients[*at[:2], None]}
    return model.Config(
        path=file.path,
        clusters=file.clusters,
        flow_configs={flow: _flow_config(file, flow) for flow in file.flows},
        clients=clients,
        stack=_family(file, keys.STACK_PREFIX),
        spark=_family(file, keys.SPARK_PREFIX),
        warnings=file.warnings,
        report_key=_report_key(file),
        service=_service(file),
        sha256=settings_sha256(file),
        log_format=file.value("log.format"),
    )


def find_problems(
    path: Path | None,
    open_client: Callable[[str, values.ClientProperties, bool], object],
    *,
    strict: bool = False,
) -> tuple[SettingsFile, tuple[SrmError, ...]]:
    """Read a file; return all that is wrong with it, each cause once.

    ``open_client`` reads the properties of a client of a cluster, and opens the files that they
    name unless these had a problem already.
    """
    with values.collect_problems() as of_lines:
        file = read_settings(path, strict=strict)
    with values.collect_problems() as of_values:
        try_values(file)
        _try_clients(file, of_values, open_client)
    own = (error for error in of_values if not _is_of_unresolved(file, str(error)))
    return file, tuple({str(error): error for error in (*of_lines, *own)}.values())


def try_values(file: SettingsFile) -> None:
    """Resolve each value, each as a part of its own (:func:`values.own_problem`)."""
    attempts: list[Callable[[], object]] = [partial(_servers, file, one) for one in file.clusters]
    for flow in file.flows:
        attempts += [partial(file.value, key.name, flow) for key in keys.FLOW_KEYS]
        attempts += [
            partial(part, file, flow) for part in (_policy, _filters, _redirect, _check_notifier)
        ]
    attempts += [partial(file.value, key.name) for key in keys.FILE_KEYS]
    attempts += [partial(_open, file, key.name) for key in keys.FILE_KEYS]
    attempts.append(partial(_service, file))
    attempts.append(partial(build_config, file, stores=False))
    for attempt in attempts:
        with values.own_problem():
            attempt()


def _try_clients(
    file: SettingsFile,
    problems: list[SrmError],
    open_client: Callable[[str, values.ClientProperties, bool], object],
) -> None:
    tried: list[values.ClientProperties] = []
    for flow in (None, *file.flows):
        for alias in file.clusters if flow is None else (flow.source, flow.target):
            for kind in model.CLIENT_KINDS:
                before = len(problems)
                found = resolve_client(alias, kind, file.settings, flow).values()
                unread = frozenset(one.name for one in found if not _is_readable(file, one))
                with values.own_problem():
                    given = _client(file, alias, kind, flow, stores=True, without=unread)
                    client = values.ClientProperties(given)
                    if client not in tried:
                        tried.append(client)
                        open_client(alias, client, len(problems) == before)


def _open(file: SettingsFile, name: str) -> None:
    """Read the file that a key names, relative to the folder of the properties file."""
    if _is_readable(file, file.resolve(name), Path(file.path).parent) and name == _REPORT_KEY:
        with values.at_place(file.path):
            _report_key(file).read()


def _is_readable(file: SettingsFile, resolved: Resolved, folder: Path = Path()) -> bool:
    """Return whether the file that a setting names can be read, and collect why not."""
    if not resolved.name.endswith(".location") or not resolved.value:
        return True
    location = _in_home(resolved)
    if names_several(location) or (folder / location).is_dir():
        return True
    with values.own_problem(), file.at(resolved):
        read_file(str(folder / location))
        return True
    return False


def _in_home(resolved: Resolved) -> str:
    """Return a value, in a path with the home that ``~`` is."""
    value = resolved.value or ""
    is_path = resolved.name.endswith(".location") and value.startswith("~")
    return str(user_path(value)) if is_path else value


def _is_of_unresolved(file: SettingsFile, error: str) -> bool:
    """True if an error may be due to a value that has a problem of its own already."""
    for setting in file.settings:
        name, scope = setting.name, setting.scope
        # Errors of a store name its location instead.
        stem = "password" if name.endswith("password") else name
        places = (f"cluster {scope}", f"{scope}.") if setting.level is Level.ALIAS else ("",)
        # Not of a longer name: topics.exclude is not topics.
        named = setting.written.is_unresolved and re.search(rf"{re.escape(stem)}(?![.-]?\w)", error)
        if named and any(place in error for place in places):
            return True
    return False


def _family(file: SettingsFile, prefix: str) -> dict[str, str]:
    found = (setting for setting in file.settings if setting.name.startswith(prefix))
    return {setting.name: setting.written.value for setting in found}


def settings_sha256(file: SettingsFile) -> str:
    """Identify what a file says: SHA-256 in hexadecimal of its lines ``key=value``, sorted.

    Of secrets only that they are set: a hash over them would let them be guessed at leisure.
    """
    lines = sorted(
        f"{setting.written.key}={values.shown(setting.written.key, setting.written.value)}"
        for setting in file.settings
    )
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _service(file: SettingsFile) -> model.ServiceSettings:
    resolved = file.resolve("service.targets")
    if unknown := sorted({*split_patterns(resolved.value or "")} - {*file.clusters}):
        with file.at(resolved):
            raise ConfigError(
                f"{', '.join(unknown)}: not among the clusters {', '.join(file.clusters)}"
            )
    found: dict[str, Any] = {key.attribute: file.value(key.name) for key in keys.SERVICE_KEYS}
    return model.ServiceSettings.of(found, Path(file.path).parent)


def _report_key(file: SettingsFile) -> model.ReportKey:
    location = file.resolve(_REPORT_KEY).value
    if not location:
        return model.ReportKey()
    path = Path(file.path).parent / user_path(location)
    return model.ReportKey(path, file.resolve("report.signing.key.password").value)


def target_only(flow: Flow, lines: Iterable[properties.Property], path: str) -> model.Config:
    """Build a Config that reaches a flow's target alone, from client settings without aliases."""
    clusters = f"{flow.source}, {flow.target}"
    file = understand((properties.Property("clusters", clusters), *lines), path)
    clients = _clients(file, [flow.target])
    _check_addresses(replace(file, clusters=(flow.target,)))
    return model.Config(
        path=path,
        clusters=file.clusters,
        flow_configs={flow: _flow_config(file, flow)},
        clients=clients,
        warnings=file.warnings,
    )


def _clusters(lines: tuple[properties.Property, ...], path: str) -> tuple[str, ...]:
    """Return the aliases; without a valid line those that other lines name, with a problem."""
    named = [line for line in lines if line.key == "clusters"]
    clusters = tuple(dict.fromkeys(split_patterns(named[-1].value))) if named else ()
    wrong = [one for one in clusters if not _ALIAS.fullmatch(one) or one in _RESERVED]
    if clusters and not wrong:
        return clusters
    found = filter(None, map(_NAMING.fullmatch, (line.key for line in lines)))
    aliases = (alias for match in found for alias in match.groups())
    clusters = tuple(dict.fromkeys(one for one in aliases if one and one not in _RESERVED))
    example = f"clusters = {', '.join(clusters) or 'P, B'}"
    with values.own_problem():
        if not wrong:
            raise ConfigError(f"{path}: key clusters is missing; list the aliases: {example}")
        raise ConfigError(
            f"{named[-1].at(path)}: {', '.join(map(repr, wrong))} cannot be the alias of a "
            "cluster; use letters, digits, - and _, with commas between aliases, and none of "
            f"{', '.join(sorted(_RESERVED))}, for example {example}"
        )
    return clusters


def _flow_config(file: SettingsFile, flow: Flow) -> model.FlowConfig:
    given: dict[str, Any] = {
        key.field: file.value(key.name, flow) for key in keys.FLOW_KEYS if key.field in _FLOW_FIELDS
    }
    if given["internal_replication_factor"] is None:
        given["internal_replication_factor"] = given["offset_syncs_replication_factor"]
    if not file.value("refresh.topics.enabled", flow):
        given["refresh_topics_interval"] = values.NEVER
    if not file.value("refresh.groups.enabled", flow):
        given["refresh_groups_interval"] = values.NEVER
    _check_notifier(file, flow)
    policy, back = _policy(file, flow), _policy(file, flow.reverse)
    keep_names = _keeps_names(flow, policy) and _keeps_names(flow.reverse, back)
    joined = _joined_flows(file, flow)
    _refuse_return(file, flow)
    back_topics = NameFilter()
    if keep_names:
        lists = (file.value(key, flow.reverse) for key in ("topics", "topics.exclude"))
        back_topics = _filters(file, flow.reverse)["topic_filter"](*lists)
    return model.FlowConfig(
        flow=flow,
        policy=policy,
        back=back,
        both_enabled=all(file.value("enabled", one) for one in (flow, flow.reverse)),
        back_topics=back_topics,
        joined=frozenset(other.source for other in joined),
        aliases=frozenset(file.clusters),
        isolation_level=_isolation_level(file, flow),
        records=_records(file, flow, (*joined, *((flow.reverse,) if keep_names else ()))),
        redirect=_redirect(file, flow),
        **_filters(file, flow),
        **given,
    )


def _isolation_level(file: SettingsFile, flow: Flow) -> model.IsolationLevel:
    level = _client(file, flow.source, "consumer", flow).get("isolation.level", "read_committed")
    if level not in get_args(model.IsolationLevel):
        raise ConfigError(
            f"{file.path}: {flow}: isolation.level: {level!r} is neither read_committed nor "
            "read_uncommitted"
        )
    return cast("model.IsolationLevel", level)


def _records(file: SettingsFile, flow: Flow, others: Collection[Flow]) -> RecordSettings:
    """Read what a flow does to records; ``others`` copy into the same names, or back from them."""
    given: dict[str, Any] = {key.name: file.value(key.name, flow) for key in keys.RECORD_KEYS}
    overrides = "provenance.header.filter.overrides"
    name = "provenance.header.name"
    if not given[name]:
        raise ConfigError(f"{file.path}: {name} is empty")
    for other in others:
        if given[name] != file.value(name, other):
            raise ConfigError(
                f"{file.path}: {flow}: {name} differs from that of {other}, and each recognises "
                "the other's copies by it; set one name for both"
            )
    with values.at_place(file.path, overrides):
        found = parse_overrides(given[overrides] or "")
    return RecordSettings(
        # Names do not show which records have come from the target. Also while the opposite flow is
        # disabled: what is copied without the header would return when it is enabled.
        provenance=given["provenance.header.enable"] or bool(others),
        provenance_name=given["provenance.header.name"],
        overrides=found,
        source_offsets=given["copy.source.offset.in.header.enabled"],
        exclude_headers=given["records.exclude.headers"],
    )


def _check_notifier(file: SettingsFile, flow: Flow) -> None:
    resolved = file.resolve("failover.notifier.arguments", flow)
    try:
        why = "" if isinstance(json.loads(resolved.value or ""), dict) else "not a JSON object"
    except ValueError as error:
        why = f"not JSON: {error}"
    if why:
        with file.at(resolved, flow):
            raise ConfigError(f'{why}; write it as {{"text": "{{{{ srm.text }}}}"}}')


def _redirect(file: SettingsFile, flow: Flow) -> model.RedirectSettings:
    given: dict[str, Any] = {key.name: file.value(key.name, flow) for key in keys.MOVE_KEYS}

    def place(key: str) -> AbstractContextManager[None]:
        return file.at(file.resolve(key, flow), flow)

    with place("failover.redirect"):
        kinds = in_order(given["failover.redirect"] or ROUTING_ALONE)
    url = urlsplit(given["failover.webhook.url"])
    if url.geturl() and not (url.scheme in {"http", "https"} and url.hostname):
        with place("failover.webhook.url"):
            raise ConfigError("not an address such as https://host/path")
    with place("failover.command"):
        try:
            command = tuple(shlex.split(given["failover.command"]))
        except ValueError as error:
            raise ConfigError(f"{error}: write it as for a shell") from None
    return model.RedirectSettings(
        kinds=kinds,
        webhook_url=values.Secret(url.geturl()),
        webhook_secret=values.Secret(given["failover.webhook.secret"]),
        webhook_timeout=given["failover.webhook.timeout.seconds"],
        command=command,
        command_timeout=given["failover.command.timeout.seconds"],
        fence=given["failover.fence"],
        addresses={
            alias: _client(file, alias, "admin", flow).get("bootstrap.servers", "")
            for alias in (flow.source, flow.target)
        },
    )


def _policy(file: SettingsFile, flow: Flow) -> ReplicationPolicy:
    separator = file.resolve("replication.policy.separator", flow).value or ""
    if not re.fullmatch(r"[A-Za-z0-9._\-]+", separator):
        raise ConfigError(
            f"{file.path}: replication.policy.separator: {separator!r} is invalid in a topic "
            "name; use letters, digits, ., _ or -"
        )
    internal = file.value("replication.policy.internal.topic.separator.enabled", flow)
    if separator != "." and not internal:
        raise ConfigError(
            f"{file.path}: replication.policy.internal.topic.separator.enabled = false is not "
            f"supported with the separator {separator!r}; remove one of the two lines"
        )
    resolved = file.resolve(_POLICY, flow)
    name = resolved.value or keys.KEYS[_POLICY].default or ""
    with file.at(resolved, flow):
        return values.policy_of(name, flow.source, separator, file.clusters)


def _keeps_names(flow: Flow, policy: ReplicationPolicy) -> bool:
    return FlowTopics(flow, policy).keeps_name("topic")


def _copies_under_names(file: SettingsFile, flow: Flow) -> bool:
    return file.value("enabled", flow) and _keeps_names(flow, _policy(file, flow))


def _joined_flows(file: SettingsFile, flow: Flow) -> list[Flow]:
    """Return the flows from other sources that may copy into the same names of the target.

    Flows that name different topics do not. Records of one cluster that arrive by both would be
    there twice: a ConfigError.
    """
    joined = list[Flow]()
    if not _copies_under_names(file, flow):
        return joined
    for other in file.flows:
        if other == flow or other.target != flow.target or not _copies_under_names(file, other):
            continue
        if not _may_overlap(file, flow, other):
            continue
        common = _origins(file, flow) & _origins(file, other)
        if not common:
            joined.append(other)
        else:
            one, two = sorted((flow, other))
            raise ConfigError(
                f"{file.path}: {flow.target} would get records of {min(common)} twice, by {one} "
                f"and {two}, which keep names; name different topics in {one}.topics and "
                f"{two}.topics, without patterns, or disable one of the flows between the sources"
            )
    return joined


def _origins(file: SettingsFile, flow: Flow) -> set[str]:
    found, left = {flow.source}, [flow.source]
    while left:
        here = left.pop()
        new = {
            one.source
            for one in file.flows
            if one.target == here and one.source not in {flow.target, *found}
            if _copies_under_names(file, one)
        }
        found |= new
        left += new
    return found


def _refuse_return(file: SettingsFile, flow: Flow) -> None:
    """Refuse that one flow keeps names and its opposite renames the same topics.

    A name on the target then shows neither what has come there, nor that it goes back.
    """
    back = flow.reverse
    renames = file.value("enabled", back) and not _copies_under_names(file, back)
    if renames and _copies_under_names(file, flow) and _may_overlap(file, flow, back):
        raise ConfigError(
            f"{file.path}: {flow} keeps names of topics and {back} does not, so {back} would copy "
            f"records of {flow.source} back to it: set one replication.policy.class for both, or "
            f"name different topics in {flow}.topics and {back}.topics, without patterns"
        )


def _may_overlap(file: SettingsFile, one: Flow, other: Flow) -> bool:
    lists = [set(file.value("topics", flow) or ()) for flow in (one, other)]
    plain = [set(NameFilter(tuple(each)).names) for each in lists]
    return lists != plain or bool(lists[0] & lists[1]) or not all(lists)


def _filters(file: SettingsFile, flow: Flow) -> dict[str, Any]:
    found = dict[str, type[NameFilter]]()
    for key in keys.CLASS_KEYS:
        default = key.default or ""
        resolved = file.resolve(key.name, flow)
        with file.at(resolved, flow):
            name = resolved.value or default
            found[key.field.removesuffix("_class")] = values.filter_of(name, default)
    return found


_Clients = dict[tuple[str, model.ClientKind, Flow | None], values.ClientProperties]


def _clients(
    file: SettingsFile, aliases: Iterable[str], flow: Flow | None = None, *, stores: bool = True
) -> _Clients:
    return {
        (alias, kind, flow): values.ClientProperties(
            _client(file, alias, kind, flow, stores=stores)
        )
        for alias in aliases
        for kind in model.CLIENT_KINDS
    }


def _client(
    file: SettingsFile,
    alias: str,
    kind: model.ClientKind,
    flow: Flow | None = None,
    *,
    stores: bool = False,
    without: Collection[str] = (),
) -> dict[str, str]:
    given = {
        name: _in_home(resolved)
        for name, resolved in resolve_client(alias, kind, file.settings, flow).items()
        if keys.CLIENT_KEYS[name].librdkafka is not None and resolved.value is not None
        if name not in without
        if stores
        or not (
            name.startswith(_STORES)
            or (name.endswith(".ca.location") and names_several(_in_home(resolved)))
        )
    }
    with values.at_place(file.path, f"cluster {alias}"):
        translated = translate_security(given)
    client: dict[str, str] = {}
    # librdkafka's own name wins over the Java name of the same setting.
    for name in sorted(translated, key=lambda name: _librdkafka(name) == name):
        client[_librdkafka(name)] = translated[name]
    return {name: _notation(name, value) for name, value in client.items()}


def _librdkafka(name: str) -> str:
    key = keys.CLIENT_KEYS.get(name)
    return key.librdkafka if key is not None and key.librdkafka is not None else name


def _notation(name: str, value: str) -> str:
    if name == "bootstrap.servers":
        return ",".join(split_patterns(value))
    # Java's -1 leaves the size of a socket buffer to the system, librdkafka's 0 does.
    if name in {"socket.send.buffer.bytes", "socket.receive.buffer.bytes"} and value == "-1":
        return "0"
    # Java has no upper limit, and had another name for the only way to look addresses up.
    if name == "socket.timeout.ms" and value.isdecimal():
        return str(min(int(value), _LONGEST_MS))
    return "use_all_dns_ips" if (name, value) == ("client.dns.lookup", "default") else value


def _check_addresses(file: SettingsFile) -> None:
    addresses = {alias: _servers(file, alias) for alias in file.clusters}
    for one, other in combinations(file.clusters, 2):
        common = addresses[one] & addresses[other]
        if common:
            raise ConfigError(
                f"{file.path}: {one} and {other} are the same cluster: both name "
                f"{values.without_login(min(common))}; give each its own bootstrap.servers"
            )


def _servers(file: SettingsFile, alias: str) -> frozenset[str]:
    written = _client(file, alias, "admin").get("bootstrap.servers", "")
    servers = split_patterns(written)
    if not servers:
        unknown = "; srm config check --strict shows the unknown keys" if file.unknown else ""
        raise ConfigError(
            f"{file.path}: cluster {alias} has no address; add {alias}.bootstrap.servers = "
            f"host:port{unknown}"
        )
    for server in servers:
        if not _SERVER.fullmatch(server):
            # A password may have commas, too.
            text = values.without_login(written) if "@" in written else server
            raise ConfigError(
                f"{file.path}: {alias}.bootstrap.servers: {text!r} is not of the form host:port"
            )
    return frozenset(server.rpartition("//")[2].lower() for server in servers)
