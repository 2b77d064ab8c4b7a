"""The tables of keys, their documentation and the model stay in step."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from confluent_kafka import KafkaException, Producer
from tests.unit.test_language import AVOIDED

from srm.config.keys import (
    CLIENT_KEYS,
    FLOW_KEYS,
    IGNORED_KEYS,
    IGNORED_PREFIXES,
    KEYS,
    MOVE_KEYS,
    RECORD_KEYS,
    TRANSLATED,
    Origin,
    ValueKind,
    find_key,
)
from srm.config.loader import understand
from srm.config.model import FlowConfig
from srm.config.properties import Property
from srm.config.values import parse_value
from srm.domain.names.record_headers import PROVENANCE_HEADER, SOURCE_OFFSETS_HEADER
from srm_lab.docs.configuration import DEFAULT_PATH, with_tables

HEAD = (
    Property("clusters", "P, B", 1),
    Property("P.bootstrap.servers", "p:9092", 2),
    Property("B.bootstrap.servers", "b:9092", 3),
)
ROOT = Path(__file__).parents[4]


def test_every_setting_of_a_flow_comes_from_exactly_one_key() -> None:
    named = [key.field for key in FLOW_KEYS]

    assert len(named) == len(set(named))
    made_of_several = {
        "aliases",
        "flow",
        "policy",
        "back",
        "both_enabled",
        "joined",
        "back_topics",
        "isolation_level",
        "records",
    }
    classes = {"topic_filter", "group_filter", "config_property_filter"}
    others = {"redirect", "recorded", *made_of_several, *classes}
    assert {f.name for f in dataclasses.fields(FlowConfig)} - {*named} == others


def test_each_row_of_the_table_has_kinds_and_owners_that_exist_and_plain_words() -> None:
    for key in KEYS.values():
        assert key.kind in get_args(ValueKind)
        assert key.origin in get_args(Origin)
        assert not AVOIDED.search(key.doc), key.name
    assert {key.users for key in CLIENT_KEYS.values()} == {"all", "consumer", "producer"}
    assert KEYS["provenance.header.name"].default == PROVENANCE_HEADER
    assert SOURCE_OFFSETS_HEADER in KEYS["copy.source.offset.in.header.enabled"].doc


def test_every_default_is_a_value_of_its_key() -> None:
    for key in (*FLOW_KEYS, *MOVE_KEYS, *RECORD_KEYS):
        assert key.default is None or parse_value(key, key.default) is not None, key.name


def test_no_name_is_used_twice() -> None:
    names = [
        name
        for key in (*FLOW_KEYS, *MOVE_KEYS, *RECORD_KEYS, *IGNORED_KEYS)
        for name in (key.name, *key.synonyms, *key.deprecated)
    ]

    assert len(names) == len(set(names))
    # Of MirrorMaker 2's workers; consumer.group.id is a client's.
    assert set(names) & set(CLIENT_KEYS) == {"group.id"}


def test_a_family_of_keys_is_found_by_its_prefix() -> None:
    found = find_key("offset.storage.partitions")

    assert found in IGNORED_PREFIXES
    assert find_key("offset.nothing") is None


def test_librdkafka_knows_every_name_that_settings_are_turned_into() -> None:
    """A setting it does not know would only fail when the first client is made."""
    names = {
        key.librdkafka
        for key in CLIENT_KEYS.values()
        if key.librdkafka is not None and key.name not in TRANSLATED
    }

    unknown = {name for name in names if not _known_to_librdkafka(name)}

    assert unknown == set()
    assert not _known_to_librdkafka("buffer.memory")


def _known_to_librdkafka(name: str) -> bool:
    """Ask it; the second, unknown name keeps a producer from being made."""
    with pytest.raises((KafkaException, TypeError, ValueError)) as refused:
        Producer({name: "?", "no.such.property": "?"})
    return f'No such configuration property: "{name}"' not in str(refused.value)


OVERVIEW = """
    admin.timeout.ms bootstrap.servers checkpoints.topic.replication.factor
    config.properties.blacklist config.properties.exclude config.property.filter.class
    config.storage.topic connect.start.task.timeout.ms connectors.consumer.max.poll.records
    connectors.producer.override.buffer.memory consumer.poll.timeout.ms
    copy.source.offset.in.header.enabled disable.source.topic.auto.creation
    emit.checkpoints.interval.seconds emit.heartbeats.interval.seconds errors.log.enable
    errors.log.include.messages errors.retry.delay.max.ms errors.retry.timeout errors.tolerance
    header.converter heartbeats.topic.replication.factor key.converter listeners.https.port
    mm.rest.protocol offset-syncs.topic.location offset-syncs.topic.replication.factor
    offset.flush.timeout.ms offset.lag.max offset.storage.replication.factor
    refresh.groups.enabled refresh.topics.enabled replication.policy.class
    replication.policy.separator scheduled.rebalance.max.delay.ms ssl.cipher.suites
    ssl.login.callback.handler.class status.storage.topic sync.group.offsets.enabled
    sync.group.offsets.interval.seconds sync.topic.acls.enabled sync.topic.configs.enabled
    task.shutdown.graceful.timeout.ms tasks.max value.converter worker.sync.timeout.ms
    workers.offset.flush.timeout.ms B.offset.flush.timeout.ms P->B.worker.offset.flush.timeout.ms
    P->B.consumer.max.poll.records P->B.producer.override.buffer.memory
"""
"""Properties that the overview of SRM 7.3.2 names, at the levels at which it shows them."""


def test_every_property_of_srm_s_overview_has_a_row() -> None:
    names = OVERVIEW.split()
    lines = [Property(name, "1", 4) for name in names if name != "bootstrap.servers"]

    file = understand((*HEAD, *lines), "file", strict=True)

    assert len(file.settings) == len(HEAD) + len(lines)
    assert file.unknown == 0


def test_the_page_documents_every_key() -> None:
    page = (ROOT / DEFAULT_PATH).read_text("utf-8")

    missing = [name for name in (*KEYS, *CLIENT_KEYS) if f"`{name}`" not in page]
    assert [name for name in missing if name not in TRANSLATED] == []
    assert [key.name for key in IGNORED_PREFIXES if f"`{key.name}*`" not in page] == []


def test_the_page_in_docs_is_the_generated_one() -> None:
    """Run ``python -m srm_lab.docs.configuration`` after changing a table."""
    page = (ROOT / DEFAULT_PATH).read_text("utf-8")
    assert page == with_tables(page)


def test_the_generator_writes_the_page(tmp_path: Path) -> None:
    page, whole = tmp_path / "page.md", (ROOT / DEFAULT_PATH).read_text("utf-8")
    tables = re.compile(r"(<!-- Table of \w+ -->\n).*?(?=<!-- End)", re.DOTALL)
    page.write_text(tables.sub(r"\1", whole))

    subprocess.run(
        [sys.executable, "-m", "srm_lab.docs.configuration", str(page)], check=True, timeout=300
    )

    assert page.read_text("utf-8") == whole
