"""The composition root joins the right clusters, lists and maps, without a connection."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from srm import patience
from srm.clock import now_ms
from srm.config.loader import load_config
from srm.config.restoring import with_restore
from srm.domain.names.topics import Flow
from srm.domain.recovery.restore import restore_flow
from srm.engine.control import control_lists
from srm.engine.control.control_lists import ControlLists
from srm.errors import AuthorizationError, ConfigError, GivenUpError, UnavailableError
from srm.kafka.cluster import KafkaCluster
from srm.kafka.wire.brokers import refusals_of
from srm.wiring import (
    flow_context,
    open_cluster,
    open_configured_flow,
    open_flow,
    open_move,
    require_two_clusters,
)
from srm_lab.testing.fake_cluster import FakeCluster

FILE = """
clusters = P, B
P.bootstrap.servers = 127.0.0.1:1
B.bootstrap.servers = 127.0.0.1:2
P->B.enabled = true
P->B.topics = Payments
admin.timeout.ms = 300
"""


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "srm.properties"
    path.write_text(FILE, encoding="utf-8")
    return load_config(path)


def test_opening_a_cluster_connects_to_nothing(config):
    with open_cluster(config, "P") as cluster:
        assert isinstance(cluster, KafkaCluster)
        assert cluster.alias == "P"


def test_a_cluster_that_is_not_configured_is_named(config):
    with pytest.raises(ConfigError, match="'X'"), open_cluster(config, "X"):
        pass


def test_a_flow_that_is_not_configured_is_named(config):
    with pytest.raises(ConfigError, match="P->X"), open_flow(config, Flow("P", "X")):
        pass


def test_calls_of_a_flow_take_as_long_as_its_file_permits(tmp_path):
    path = tmp_path / "srm.properties"
    path.write_text(f"{FILE}P->B.admin.timeout.ms = 300\n", encoding="utf-8")

    began = time.monotonic()
    with (
        open_configured_flow(load_config(path), Flow("P", "B")) as context,
        pytest.raises(UnavailableError),
    ):
        context.source.topics()

    assert time.monotonic() - began < 15


def test_a_flow_has_its_clusters_and_the_maps_of_both_directions(config):
    source, target = FakeCluster("P"), FakeCluster("B")
    clients = config.cluster_clients("B")

    context = flow_context(config.flow(Flow("P", "B")), source, target, clients)

    assert (context.source, context.target) == (source, target)
    assert context.maps.load(["Payments"]).maps == {}
    assert context.reverse_maps.load(["Payments"]).maps == {}
    assert abs(context.now_ms() - time.time() * 1000) < 60_000


def test_a_flow_that_restores_is_opened_as_any_other(config, monkeypatch):
    """It has settings and clients under an alias of its own, and no opposite flow."""
    monkeypatch.setattr(control_lists, "load", lambda *_: ControlLists())
    both, flow = with_restore(config, Flow("P", "B"), ["P.Payments"]), restore_flow(Flow("P", "B"))

    with open_flow(both, flow) as context:
        assert context.config.flow == flow
        assert context.opposite is None


@pytest.mark.parametrize(("partial", "seconds"), [(True, 5.0), (False, 60.0)])
def test_a_look_checks_sooner_than_a_move_whether_a_cluster_still_lives(
    config, monkeypatch, partial, seconds
):
    """Srm status hung for 30 s; a cluster that is slow has its whole time."""
    patient = replace(config.flow(Flow("P", "B")), admin_timeout_ms=60_000)
    config = replace(config, flow_configs={Flow("P", "B"): patient})
    monkeypatch.setattr("srm.wiring._silent", lambda _: {})
    for name in ("with_recorded", "settings_now"):
        as_it_is = f"srm.engine.control.recorded_copies.{name}"
        monkeypatch.setattr(as_it_is, lambda configured, *_: configured)
    monkeypatch.setattr(control_lists, "merged_if_known", lambda configured, *_: configured)

    with (
        patience.limit(4.0),
        open_flow(config, Flow("P", "B"), partial=partial) as context,
    ):
        ends = context.source, context.target
        assert [(one.silence_s, one.timeout_s) for one in ends] == [(seconds, 60.0)] * 2


def test_clusters_that_are_not_there_are_waited_for_once_however_many_flows_need_them(
    config, monkeypatch
):
    queried: list[str] = []

    def refusals(clusters, timeout_s):
        queried.extend(alias for alias, _ in clusters)
        return refusals_of(clusters, timeout_s)

    monkeypatch.setattr("srm.wiring.refusals_of", refusals)
    with patience.limit(60.0):
        with open_flow(config, Flow("P", "B"), partial=True) as context:
            both = (
                r"127\.0\.0\.1:2: connection refused.*127\.0\.0\.1:1: connection refused \(P\.boot"
            )
            for cluster in (context.source, context.target):
                with pytest.raises(GivenUpError, match=both):
                    cluster.topics()
            assert context.config.flow == Flow("P", "B")
        with open_flow(config, Flow("B", "P"), partial=True) as context:
            with pytest.raises(GivenUpError, match=r"B\.bootstrap\.servers = 127\.0\.0\.1:2"):
                context.source.cluster_id()
            with pytest.raises(GivenUpError, match=r"P\.bootstrap\.servers = 127\.0\.0\.1:1"):
                context.target.cluster_id()
        assert queried == ["P", "B"]
        with (
            patience.renew(),
            open_cluster(config, "P") as cluster,
            pytest.raises(GivenUpError, match="refused"),
        ):
            cluster.topics()
        assert queried == ["P", "B", "P"]


def test_a_flow_between_two_names_of_one_cluster_is_refused_once_both_have_answered(
    config, monkeypatch
):
    ids: dict[str, str | None] = {"P": "one", "B": None}
    monkeypatch.setattr(KafkaCluster, "known_id", property(lambda cluster: ids[cluster.alias]))
    monkeypatch.setattr(KafkaCluster, "cluster_id", lambda cluster: ids[cluster.alias])
    monkeypatch.setattr(KafkaCluster, "topics", lambda _: {})
    with open_configured_flow(config, Flow("P", "B")) as context:
        assert context.source.topics() == {}  # B may be dead
        ids["B"] = "other"
        assert context.target.topics() == {}
        ids["B"] = "one"  # the address leads elsewhere now
        for cluster in (context.source, context.target):
            with pytest.raises(ConfigError) as refused:
                cluster.topics()
            assert str(refused.value) == (
                "B and P are one cluster, one; correct B.bootstrap.servers = 127.0.0.1:2 or "
                "P.bootstrap.servers = 127.0.0.1:1"
            )


def test_a_replicator_is_refused_if_one_flow_is_within_one_cluster_and_waits_for_no_dead_one(
    tmp_path, monkeypatch
):
    file = tmp_path / "srm.properties"
    file.write_text(f"{FILE.replace('P, B', 'P, B, C')}\nC.bootstrap.servers = 127.0.0.1:3\n")
    config, flows = load_config(file), [Flow("P", "B"), Flow("B", "P"), Flow("C", "P")]
    ids = {"P": "one", "B": "one", "C": "two"}

    def refusals(clusters, _timeout_s):
        dead = UnavailableError("no answer")
        return [None if alias in ids else dead for alias, _ in clusters]

    monkeypatch.setattr("srm.wiring.refusals_of", refusals)
    monkeypatch.setattr(KafkaCluster, "known_id", property(lambda cluster: ids[cluster.alias]))
    refused = r"^B and P are one cluster, one; correct"
    with pytest.raises(ConfigError, match=refused):
        require_two_clusters(config, flows)
    source, target = (KafkaCluster(alias, config.cluster_clients(alias)) for alias in "PB")
    with patience.limit(60.0), pytest.raises(ConfigError, match=refused):
        flow_context(config.flow(flows[0]), source, target, target.props)
    require_two_clusters(config, flows[2:])  # B is not of its flows
    del ids["C"]
    with pytest.raises(ConfigError, match=refused):
        require_two_clusters(config, flows)
    ids["B"] = "three"
    require_two_clusters(config, flows)


def test_a_replicator_whose_flows_all_have_wrong_settings_ends_before_it_starts(
    config, monkeypatch
):
    """That the address was of a web server was said after 31 s, behind Spark's start."""
    wrong = ConfigError("cluster P, broker localhost:8080 answers HTTP, not Kafka", "correct it")

    def refusals(clusters, _):
        return [wrong if alias == "P" else None for alias, _ in clusters]

    monkeypatch.setattr("srm.wiring.refusals_of", refusals)
    with pytest.raises(ConfigError, match="answers HTTP, not Kafka"):
        require_two_clusters(config, [Flow("P", "B"), Flow("B", "P")])
    require_two_clusters(config, [])


def test_without_the_patience_of_a_command_a_cluster_is_opened_whatever_its_state(config):
    with open_cluster(config, "P") as cluster:
        assert isinstance(cluster, KafkaCluster)


def test_a_wrong_setting_is_reported_as_such_by_each_call(config, monkeypatch):
    refused = AuthorizationError("cluster P refuses srm's login", "check it")
    monkeypatch.setattr("srm.wiring.refusals_of", lambda *_: [refused])
    with (
        patience.limit(60.0),
        open_cluster(config, "P") as cluster,
        pytest.raises(AuthorizationError, match="refuses srm's login; check it"),
    ):
        cluster.topics()


def test_the_clock_counts_milliseconds_since_the_epoch():
    assert abs(now_ms() - time.time() * 1000) < 60_000


def test_an_unplanned_move_never_connects_to_the_cluster_that_is_given_up(config, monkeypatch):
    monkeypatch.setattr(control_lists, "load", lambda *_: ControlLists())  # B is not there either
    with open_move(config, "P", "B", unplanned=True) as context:
        for cluster in (context.source, context.reverse.target):
            with pytest.raises(UnavailableError, match="abandoned cluster P"):
                cluster.topics()
        assert isinstance(context.target, KafkaCluster)
