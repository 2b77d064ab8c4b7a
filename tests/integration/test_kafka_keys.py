"""Every key that Kafka's own classes know may be in the file, wherever people write it."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

import pytest
from tests.integration.kafka_tools import run_tool

from srm.config.keys import KEYS, ConfigKey, find_key
from srm.config.loader import build_config, understand
from srm.config.properties import Property
from srm.config.security import translate_security
from srm.config.values import parse_value
from srm.domain.names.topics import Flow
from srm.errors import ConfigError
from srm_lab.docs.configuration import DEFAULT_PATH

pytestmark = [pytest.mark.kafka, pytest.mark.integration]

PROGRAM = Path(__file__).with_name("KafkaKeys.java")
_MIRROR: Final = "org.apache.kafka.connect.mirror"
_CLASSES: Final = (
    *(f"{_MIRROR}.Mirror{name}Config" for name in ("Maker", "Source", "Checkpoint", "Heartbeat")),
    f"{_MIRROR}.MirrorClientConfig",
    f"{_MIRROR}.DefaultTopicFilter$TopicFilterConfig",
    f"{_MIRROR}.DefaultGroupFilter$GroupFilterConfig",
    f"{_MIRROR}.DefaultConfigPropertyFilter$ConfigPropertyFilterConfig",
    "org.apache.kafka.connect.runtime.distributed.DistributedConfig",
    "org.apache.kafka.connect.runtime.SourceConnectorConfig",
)
_CLIENTS: Final = tuple(
    f"org.apache.kafka.clients.{name}Config"
    for name in ("consumer.Consumer", "producer.Producer", "admin.AdminClient")
)
HEAD: Final = (
    Property("clusters", "P, B", 1),
    Property("P.bootstrap.servers", "p:9092", 2),
    Property("B.bootstrap.servers", "b:9092", 3),
)
LEVELS: Final = ("", "workers.", "connectors.", "P.", "P->B.")
CLIENT_LEVELS: Final = (
    "consumer.",
    "producer.override.",
    "B.admin.",
    "P->B.consumer.",
    "P->B.source.consumer.",
    "P->B.target.producer.",
)


class Known(NamedTuple):
    """Keys with their defaults, and cipher suites."""

    keys: dict[str, str]
    suites: tuple[str, ...]


def read_known(*classes: str) -> Known:
    printed = run_tool(str(PROGRAM), *classes).stdout.splitlines()
    rows = [line.split("\t") for line in printed]
    keys: dict[str, str] = {}
    for kind, name, default in rows:
        if kind == "key" and name != "clusters":
            keys[name] = default or keys.get(name, "")
    return Known(keys, tuple(name for kind, name, _ in rows if kind == "suite"))


@pytest.fixture(scope="module")
def clients() -> Known:
    return read_known(*_CLIENTS)


@pytest.fixture(scope="module")
def known(clients: Known) -> Known:
    found = read_known(*_CLASSES)
    return Known(clients.keys | found.keys, found.suites)


def test_no_key_of_mirror_maker_is_unknown_at_any_level(known: Known, clients: Known) -> None:
    names = [f"{level}{name}" for level in LEVELS for name in known.keys]
    names += [f"{level}{name}" for level in CLIENT_LEVELS for name in clients.keys]
    refused = "transforms", "predicates"
    lines = [Property(name, "" if name.endswith(refused) else "x", 4) for name in names]

    file = understand((*HEAD, *lines), "file", strict=True)

    assert {"offset.lag.max", "sasl.oauthbearer.jwt.retriever.class"} <= known.keys.keys()
    assert len(known.keys) > 220
    assert len(file.settings) == len(HEAD) + len(names)


@pytest.mark.parametrize("level", LEVELS)
def test_a_file_with_every_default_of_kafka_is_taken(known: Known, level: str) -> None:
    lines = [Property(f"{level}{name}", text, 4) for name, text in known.keys.items() if text]

    config = build_config(understand((*HEAD, *lines), "file"))

    assert config.flow(Flow("P", "B")).emit_checkpoints_interval.total_seconds() == 60


def test_each_key_has_a_row_and_a_default_that_differs_is_explained_there(known: Known) -> None:
    page = DEFAULT_PATH.read_text("utf-8")
    rows = {name: find_key(name) for name in known.keys}

    written = {name: row.name if row else name for name, row in rows.items()}
    assert [name for name, row in written.items() if f"`{row}" not in page] == []
    other = [
        name
        for name, key in rows.items()
        if key is not None
        and key.effect
        and known.keys[name]
        and not _agrees(key, known.keys[name])
    ]
    assert "refresh.topics.interval.seconds" in other
    assert [name for name in other if "MirrorMaker 2" not in KEYS[name].doc] == []


def _agrees(key: ConfigKey, theirs: str) -> bool:
    """Compare defaults; a pattern may name dots or any sign in their place."""
    if key.default is None or not theirs:
        return not theirs
    ours = parse_value(key, key.default.replace("\\.", "."))
    return ours == parse_value(key, theirs.replace("\\.", "."))


def test_excluded_by_default_is_what_mirror_maker_excludes(known: Known) -> None:
    flow = build_config(understand(HEAD, "file")).flow(Flow("P", "B"))

    def default(name: str) -> tuple[str, ...]:
        return tuple(part.strip() for part in known.keys[name].split(","))

    assert flow.topics_exclude == default("topics.exclude")
    assert flow.groups_exclude == default("groups.exclude")
    settings = tuple(pattern.replace("\\.", ".") for pattern in flow.config_properties_exclude)
    tiers = ("remote.storage.enable", "local.retention.bytes", "local.retention.ms")
    assert settings == default("config.properties.exclude") + tiers


def test_each_cipher_suite_that_java_offers_has_a_name_in_openssl(known: Known) -> None:
    """OpenSSL has dropped static Diffie-Hellman; the name that ends with SCSV is a signal."""
    gone = {s for s in known.suites if s.startswith("TLS_ECDH_") or s.endswith("_SCSV")}

    for suite in set(known.suites) - gone:
        translate_security({"ssl.cipher.suites": suite})
    for suite in gone:
        with pytest.raises(ConfigError, match=f"OpenSSL has no suite {suite}; remove it"):
            translate_security({"ssl.cipher.suites": suite})

    assert len(set(known.suites) - gone) > 20
