"""Engines: what they are given, and whether it took effect."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from bench.engines import (
    TUNED_CONSUMER,
    TUNED_PRODUCER,
    Route,
    check_tuning,
    client_settings,
    common_properties,
    mm2_properties,
    srm_properties,
)
from bench.errors import BenchError

from srm.config.loader import load_config
from srm.domain.names.topics import Flow

ROUTE = Route("srm1", "127.0.0.1:1", "127.0.0.1:2", ("bench-.*", "warm"))


def block(kind: str, settings: dict[str, object]) -> str:
    lines = "".join(f"\t{name} = {value}\n" for name, value in settings.items())
    return f"[2026-01-01] INFO {kind}Config values: \n{lines} (AbstractConfig:1)\n"


COPYING = {"client.id": "connector-producer-MirrorSourceConnector-0"}


def test_srm_takes_the_configuration_that_all_engines_get(tmp_path: Path) -> None:
    path = tmp_path / "srm.properties"
    path.write_text(srm_properties(ROUTE))

    flow = load_config(path).flow(Flow("srm1", "B"))

    assert flow.enabled
    assert flow.topics == ("bench-.*", "warm")
    assert flow.tasks_max == 2


def test_engines_differ_in_nothing_but_tuning_and_headers() -> None:
    assert srm_properties(ROUTE) == mm2_properties(ROUTE) == common_properties(ROUTE)
    assert mm2_properties(ROUTE, tuned=True).startswith(common_properties(ROUTE))


def test_headers_are_asked_for_in_each_engine_s_own_way() -> None:
    route = replace(ROUTE, provenance=True)

    assert "provenance.header.enable = true" in srm_properties(route)
    assert "srm1->B.transforms.provenance.type = " in mm2_properties(route)


def test_settings_of_clients_are_read_from_a_log() -> None:
    log = block("Consumer", {"max.poll.records": 500}) + "[x] INFO other (y)\n"

    assert client_settings(log) == [("consumer", {"max.poll.records": "500"})]


def test_tuned_settings_in_the_log_are_accepted() -> None:
    check_tuning(
        block("Consumer", {**TUNED_CONSUMER}) + block("Producer", {**TUNED_PRODUCER, **COPYING})
    )


@pytest.mark.parametrize("name", [*TUNED_CONSUMER, *TUNED_PRODUCER])
def test_a_setting_without_effect_is_noticed(name: str) -> None:
    consumer, producer = {**TUNED_CONSUMER}, {**TUNED_PRODUCER, **COPYING}
    (consumer if name in consumer else producer)[name] = 1

    with pytest.raises(BenchError, match="tuned settings"):
        check_tuning(block("Consumer", consumer) + block("Producer", producer))


def test_tuned_settings_of_another_producer_do_not_count() -> None:
    other = {**TUNED_PRODUCER, "client.id": "connect-offsets"}

    with pytest.raises(BenchError, match="producer"):
        check_tuning(block("Consumer", {**TUNED_CONSUMER}) + block("Producer", other))
