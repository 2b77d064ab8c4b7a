"""Plans of topics: created, grown, configured, never shrunk or deleted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from srm.config.model import FlowConfig
from srm.domain.names.policy import IdentityReplicationPolicy
from srm.domain.names.record_headers import RecordSettings
from srm.engine.cluster_ports import TopicDescription, TopicSetting, TopicSpec
from srm.engine.control.topic_sync import SyncFinding, TopicSyncPlan, plan_remote_topics


def described(name: str, partitions: int) -> dict[str, TopicDescription]:
    return {name: TopicDescription(name, "id", partitions)}


def own(settings: dict[str, str]) -> dict[str, TopicSetting]:
    return {name: TopicSetting(value) for name, value in settings.items()}


@pytest.fixture
def config(sites):
    return sites.flow("P->B").config


def test_a_missing_remote_topic_gets_the_partitions_and_settings_of_its_source(config) -> None:
    of_the_cluster = {"min.insync.replicas": "2", "remote.storage.enable": "true"}
    of_the_cluster |= {"local.retention.ms": "5", "local.retention.bytes": "6"}
    settings = own({"retention.ms": "1000", **of_the_cluster})

    plan = plan_remote_topics(described("Payments", 3), {}, config, {"Payments": settings})

    assert plan.create == (TopicSpec("P.Payments", 3, 1, {"retention.ms": "1000"}),)
    assert (plan.selected, plan.is_empty) == (1, False)


def test_a_remote_topic_grows_and_one_that_is_larger_is_left_and_named(config) -> None:
    source = described("Payments", 3)

    smaller = plan_remote_topics(source, described("P.Payments", 2), config, {})
    larger = plan_remote_topics(source, described("P.Payments", 4), config, {})

    assert smaller.grow == {"P.Payments": 3}
    assert (larger.is_empty, larger.surplus) == (True, {"P.Payments": (3, 4)})


def test_settings_follow_the_source_and_an_override_it_has_not_is_removed(config) -> None:
    plan = plan_remote_topics(
        described("Payments", 1),
        described("P.Payments", 1),
        config,
        {
            "Payments": own({"retention.ms": "1000", "cleanup.policy": "compact"})
            | {"max.message.bytes": TopicSetting("9", "default")}
        },
        {
            "P.Payments": own(
                {"retention.ms": "5", "max.message.bytes": "7", "min.insync.replicas": "2"}
            )
        },
    )

    assert plan.configs == {
        "P.Payments": {
            "cleanup.policy": "compact",
            "retention.ms": "1000",
            "max.message.bytes": None,
        }
    }


def test_settings_of_existing_topics_stay_where_their_sync_is_off_or_they_were_not_read(
    config,
) -> None:
    topics = (described("Payments", 1), described("P.Payments", 1))
    settings = {"Payments": own({"retention.ms": "1000"})}
    off = replace(config, sync_topic_configs_enabled=False)

    assert plan_remote_topics(*topics, config, settings).is_empty
    assert plan_remote_topics(*topics, off, settings, {}).is_empty


@pytest.mark.parametrize("name", ["Other", "__consumer_offsets", "B.Payments", "mm2-x.internal"])
def test_topics_that_are_not_replicated_are_skipped(config, name: str) -> None:
    everything = replace(config, topics=("Payments|B.*|__.*|.*internal",), topics_exclude=())

    assert plan_remote_topics(described(name, 1), {}, everything, {}).is_empty


def plan_settings(
    config, here: dict[str, TopicSetting], there: dict[str, TopicSetting]
) -> TopicSyncPlan:
    topics = described("Payments", 1), described("P.Payments", 1)
    return plan_remote_topics(*topics, config, {"Payments": here}, {"P.Payments": there})


def test_what_brokers_set_dynamically_is_carried_and_what_their_files_say_is_not(config) -> None:
    """As MirrorMaker 2 does; an override on the target stays where a file of the source decides."""
    plan = plan_settings(
        config,
        {"a": TopicSetting("1", "dynamic"), "b": TopicSetting("2", "static")},
        {"a": TopicSetting("9", "default"), "b": TopicSetting("3", "topic")},
    )

    assert plan.configs == {"P.Payments": {"a": "1"}}


@pytest.mark.parametrize("headers", [{"provenance": True}, {"source_offsets": True}])
@pytest.mark.parametrize("origin", ["default", "static", "topic"])
def test_a_copy_has_room_for_the_headers_that_the_flow_adds(config, headers, origin) -> None:
    """Else the largest records of the source would stop their partition, or the override go."""
    config = replace(config, records=RecordSettings(**headers))
    here = {"max.message.bytes": TopicSetting("1048588", origin)}
    wanted = {"max.message.bytes": "1049612"}

    created = plan_remote_topics(described("Payments", 1), {}, config, {"Payments": here})

    assert created.create == (TopicSpec("P.Payments", 1, 1, wanted),)
    for there in ("default", "topic"):
        found = plan_settings(config, here, {"max.message.bytes": TopicSetting("1048588", there)})
        assert found.configs == {"P.Payments": wanted}
    assert plan_settings(config, here, own(wanted)).is_empty
    most = {"max.message.bytes": TopicSetting(str(2**31 - 1), origin)}
    assert plan_settings(config, most, own({"max.message.bytes": str(2**31 - 1)})).is_empty
    shared = replace(config, policy=IdentityReplicationPolicy("."), joined=frozenset("C"))
    assert plan_remote_topics(described("Payments", 1), {}, shared, {"Payments": here}).create == (
        TopicSpec("Payments", 1, 1, {} if origin != "topic" else {"max.message.bytes": "1048588"}),
    )


def test_the_defaults_of_the_source_are_set_where_that_is_wanted(config) -> None:
    """Settings that the target's release does not know are left out."""
    here = {name: TopicSetting("1", "default") for name in ("a", "b", "newer")}
    there = {"a": TopicSetting("9", "default"), "b": TopicSetting("7", "topic")}

    of_target = plan_settings(config, here, there)
    of_source = plan_settings(replace(config, use_defaults_from="source"), here, there)

    assert of_target.configs == {"P.Payments": {"b": None}}
    assert of_source.configs == {"P.Payments": {"a": "1", "b": "1"}}


@pytest.mark.parametrize(
    ("name", "here", "there", "is_found"),
    [
        ("retention.ms", "604800000", "86400000", True),
        ("retention.ms", "-1", "86400000", True),
        ("retention.ms", "86400000", "-1", False),
        ("retention.bytes", "1000", "999", True),
        ("min.insync.replicas", "2", "1", True),
        ("min.insync.replicas", "1", "2", False),
        ("max.message.bytes", "2000", "1000", True),
        ("message.timestamp.type", "CreateTime", "LogAppendTime", True),
    ],
)
def test_a_weaker_value_in_effect_on_the_target_is_a_finding(
    config, name: str, here: str, there: str, is_found: bool
) -> None:
    sides = {name: TopicSetting(here, "static")}, {name: TopicSetting(there, "static")}

    found = plan_settings(config, *sides).findings

    texts = [finding.text for finding in found]
    assert texts == ([f"{name} is {there}, on Payments of P {here}"] if is_found else [])


def test_retention_is_no_finding_where_the_copy_deletes_nothing_or_the_plan_mends_it(
    config,
) -> None:
    shorter = {"retention.ms": TopicSetting("1")}
    compacted = {**shorter, "cleanup.policy": TopicSetting("compact", "static")}

    by_file = {"retention.ms": TopicSetting("9", "static")}
    assert plan_settings(config, by_file, compacted).findings == ()
    assert plan_settings(config, own({"retention.ms": "9"}), shorter).findings == ()


def test_a_copy_whose_source_topic_is_gone_is_reported_and_kept(config) -> None:
    topics = described("P.Payments", 1) | described("P.unselected", 1) | described("other", 1)

    plan = plan_remote_topics({}, topics, config, {}, {})

    text = "P has no topic Payments"
    assert plan.findings == (SyncFinding("P.Payments", text, "delete it once no group needs it"),)
    assert plan.is_empty


def test_settings_of_a_name_that_both_flows_use_are_not_swapped(config) -> None:
    """Each flow would set its source's value: the two would change places at each sync."""
    policy = IdentityReplicationPolicy(".", "P")
    kept = replace(config, policy=policy, back=None, both_enabled=False)
    both = replace(kept, both_enabled=True)
    topics = described("Payments", 1), described("Payments", 1)
    here = {"retention.ms": TopicSetting("1"), "max.message.bytes": TopicSetting("9", "default")}
    there = {"retention.ms": TopicSetting("2"), "max.message.bytes": TopicSetting("7")}

    def planned(settings: FlowConfig) -> TopicSyncPlan:
        return plan_remote_topics(*topics, settings, {"Payments": here}, {"Payments": there})

    assert planned(kept).configs == {"Payments": {"retention.ms": "1", "max.message.bytes": None}}
    assert planned(both).is_empty
    action = "set one value on P and B"
    assert planned(both).findings == (
        SyncFinding(
            "Payments", "retention.ms is 2 on B and 1 on P, other flows use it, too", action
        ),
        SyncFinding(
            "Payments",
            "max.message.bytes is 7 on B and 9 by default on P, other flows use it, too",
            action,
        ),
    )
    missing = plan_remote_topics(topics[0], {}, both, {"Payments": here}, {})
    assert [spec.name for spec in missing.create] == ["Payments"]
