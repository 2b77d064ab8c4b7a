"""Names that two flows share: a group there needs both maps, or it skips records."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.engine.one_name import BACK, THERE, OneName

from srm.config.model import FlowConfig
from srm.domain.names import internal_topics
from srm.engine.control import control_lists
from srm.engine.control.control_lists import ListChange
from srm.engine.control.control_topics import ensure_compacted
from srm.engine.control.recorded_copies import settings_now
from srm.engine.groups import checkpoints, group_sync
from srm.errors import UnavailableError


def now(one: OneName) -> FlowConfig:
    return settings_now(one.config.flow(THERE), one.clusters["P"], one.clusters["B"])


def synced(one: OneName, settings: FlowConfig) -> int | None:
    context = one.context(settings)
    checkpoints.emit(context)
    group_sync.sync(context)
    return one.synced


def test_a_group_is_placed_before_the_first_record_of_either_cluster_it_has_not_read(
    tmp_path: Path,
) -> None:
    one = OneName(tmp_path)
    one.record(THERE, BACK)
    one.commit(100)

    assert synced(one, now(one)) == 0


def test_before_the_opposite_flow_has_reported_a_group_is_not_placed(tmp_path: Path) -> None:
    one = OneName(tmp_path)
    one.record(THERE)
    one.maps[BACK].maps.clear()
    one.commit(100)

    settings = now(one)

    assert settings.recorded.on_source == frozenset()
    assert settings.names.is_shared("Payments")
    assert synced(one, settings) is None


def test_before_the_opposite_flow_has_recorded_its_copies_its_map_counts(tmp_path: Path) -> None:
    one = OneName(tmp_path)
    one.commit(100)

    assert synced(one, now(one)) == 0


def test_copies_on_a_cluster_without_an_answer_stay_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = OneName(tmp_path, "B->P.enabled = false\n")
    one.record(THERE, BACK)
    one.commit(100)

    def silent(*_: object) -> None:
        raise UnavailableError("timed out")

    with monkeypatch.context() as patched:
        patched.setattr(one.clusters["P"], "compacted_topic", silent)
        settings = now(one)

    assert settings.recorded.on_source is None
    assert synced(one, settings) == 0


def test_a_name_that_one_flow_alone_copies_needs_one_map(tmp_path: Path) -> None:
    one = OneName(tmp_path, "B->P.topics = Orders\n")
    one.record(THERE)
    assert not now(one).names.is_shared("Payments")
    ensure_compacted(one.clusters["P"], internal_topics.control("B"), replication_factor=1)
    changes = ListChange(add=("Payments",))
    control_lists.change(one.clusters["P"], BACK, "topics", changes, now_ms=1)

    assert now(one).names.is_shared("Payments")


def test_settings_by_the_file_alone_share_each_kept_name(tmp_path: Path) -> None:
    assert OneName(tmp_path).config.flow(THERE).names.is_shared("Payments")
