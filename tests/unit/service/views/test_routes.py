"""The REST API tells what was seen, in parts, with news only, and errors as problems."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import pytest
from fastapi.testclient import TestClient
from tests.service_views import StillWatch, config_of, look_at, still_views
from tests.unit.engine.copying_records import CopiedTopic
from tests.unit.service.views.test_series import window

from srm.domain.metrics import Statistics
from srm.engine.why import explain
from srm.service.app import create_app
from srm.service.pages import flows as pages_flows
from srm.service.routes import flows as routes_flows
from srm.service.routes.flows import Explaining
from srm.service.views.flow_rows import FlowLook
from srm.service.views.views import Views
from srm_lab.testing.flows import P_TO_B, flow_config


def watch(views: Views) -> StillWatch:
    return views._watches["B"]  # type: ignore[return-value]


def test_a_flow_says_how_it_is_and_what_a_disaster_would_cost(client: TestClient) -> None:
    [flow] = client.get("/v2/flows").json()["items"]

    assert (flow["flow"], flow["state"], flow["lag"]) == ("P->B", "RUNNING", 3)
    assert (flow["topics"], flow["partitions"], flow["groups"]) == (1, 1, 1)
    assert flow["forecast"]["records_lost"] == 3
    assert flow["forecast"]["line"].startswith("if P died now")
    assert client.get("/v2/flows/P/B").json() == flow


def test_topics_partitions_and_groups_are_told_by_either_name(client: TestClient) -> None:
    [topic] = client.get("/v2/flows/P/B/topics").json()["items"]
    [partition] = client.get("/v2/flows/P/B/topics/P.Topic/partitions").json()["items"]
    group = client.get("/v2/flows/P/B/groups/audit").json()

    assert (topic["topic"], topic["remote_topic"], topic["lag"]) == ("Topic", "P.Topic", 3)
    assert topic["groups"] == ["audit"]
    assert client.get("/v2/flows/P/B/topics/Topic").json() == topic
    assert (partition["source_next"], partition["source_end"]) == (10, 13)
    assert (group["row"]["records_read_again"], group["row"]["can_go_on"]) == (0, True)
    [position] = group["positions"]
    assert (position["checkpointed"], position["target_topic"], position["resume"]) == (
        8,
        "P.Topic",
        8,
    )
    [checkpoint] = client.get("/v2/flows/P/B/checkpoints?group=audit").json()["items"]
    assert (checkpoint["upstream_offset"], checkpoint["downstream_offset"]) == (8, 8)


def test_losses_are_events(world: CopiedTopic) -> None:
    world.lose()
    client = TestClient(create_app(still_views(look_at(world.forward))))

    [event] = client.get("/v2/flows/P/B/events").json()["items"]

    assert (event["kind"], event["topic"], event["partition"]) == ("loss", "Topic", 0)
    assert "refused" in event["text"]


def test_metrics_are_told_by_the_paths_of_srm(client: TestClient, views: Views) -> None:
    watch(views).add(window(0, "Topic"), window(60, "Topic"), window(0, ""))

    times = "from_ms=0&to_ms=900001"
    by_source = client.get(f"/v2/topic-metrics/P/B/Topic/byte-rate?{times}").json()
    by_target = client.get(f"/v2/topic-metrics/B/P.Topic/byte-rate?{times}").json()
    whole = client.get(f"/v2/cluster-metrics/P/B/replication-records-lag?{times}").json()

    assert [point["start_ms"] for point in by_source["windows"]] == [0, 60_000]
    assert by_source["unit"] == "bytes per second"
    assert by_target == by_source
    assert [point["avg"] for point in whole["windows"]] == [2]
    assert client.get("/v2/flows/P/B").json()["measured"]["records"] == 1


def test_metrics_by_the_name_on_the_target_need_no_prefix(world: CopiedTopic) -> None:
    look = look_at(world.forward)
    assert look.view is not None
    [topic] = look.view.status.topics
    status = replace(look.view.status, topics=(replace(topic, remote_topic="Topic"),))
    views = still_views(replace(look, view=replace(look.view, status=status)))
    watch(views).add(window(0, "Topic"))

    found = TestClient(create_app(views)).get(
        "/v2/topic-metrics/B/Topic/byte-rate?from_ms=0&to_ms=900001"
    )

    assert (found.json()["source"], len(found.json()["windows"])) == ("P", 1)


NOW_S = 10_000


def busy_and_idle(
    world: CopiedTopic, monkeypatch: pytest.MonkeyPatch, idle_for_s: int
) -> TestClient:
    """A flow with a topic that is copied now, slowly, and one that was copied fast a while ago."""
    look = look_at(world.forward)
    assert look.view is not None
    [topic] = look.view.status.topics
    topics = tuple(replace(topic, topic=n, remote_topic=f"P.{n}") for n in ("busy", "idle", "none"))
    view = replace(look.view, status=replace(look.view.status, topics=topics))
    views = still_views(replace(look, view=view))
    now = window(NOW_S - 60, "busy")
    fast = replace(window(NOW_S - 60 - idle_for_s, "idle"), byte_rate=Statistics(9, 9, 9, 1))
    watch(views).add(replace(now, byte_rate=Statistics(1, 1, 1, 1)), fast)
    for module in (routes_flows, pages_flows):
        monkeypatch.setattr(module, "now_ms", lambda: NOW_S * 1000)
    return TestClient(create_app(views))


@pytest.mark.parametrize(
    ("idle_for_s", "order"),
    [(60, ["idle", "busy", "none"]), (3600, ["busy", "none", "idle"])],
)
def test_topics_are_sorted_by_what_was_measured_of_late(
    world: CopiedTopic, monkeypatch: pytest.MonkeyPatch, idle_for_s: int, order: list[str]
) -> None:
    client = busy_and_idle(world, monkeypatch, idle_for_s)

    found = client.get("/v2/flows/P/B/topics?sort=byte-rate&order=desc").json()["items"]
    shown = client.get("/ui/flows/P/B?sort=byte-rate&order=desc").text

    assert [topic["topic"] for topic in found] == order
    assert {t["topic"] for t in found if t["measured"]} == ({"busy", "idle"} & {*order[:2]})
    one = client.get("/v2/flows/P/B/topics/idle").json()
    assert bool(one["measured"]) is (idle_for_s < 300)
    assert shown.index("topics/busy") < shown.index("topics/none")
    assert (shown.index("topics/idle") < shown.index("topics/busy")) is (idle_for_s < 300)


def test_metrics_of_a_topic_on_the_target_that_no_flow_writes_are_refused(
    client: TestClient,
) -> None:
    answer = client.get("/v2/topic-metrics/B/Topic/byte-rate")

    assert answer.status_code == 404
    assert "/v2/topic-metrics/SOURCE/B/TOPIC/METRIC" in answer.json()["detail"]


def test_the_first_version_of_remote_topics_is_still_there(client: TestClient) -> None:
    found = client.get("/remote-topics").json()

    assert found == client.get("/v2/remote-topics").json()
    assert found["items"] == [
        {
            "source": "P",
            "target": "B",
            "topic": "Topic",
            "remote_topic": "P.Topic",
            "partitions": 1,
        }
    ]


def test_a_cluster_is_found_by_kafkas_id_and_by_its_alias(client: TestClient) -> None:
    by_id = client.get("/v2/cluster-info/id-of-B").json()

    assert (by_id["alias"], by_id["incoming"]) == ("B", ["P->B"])
    assert client.get("/v2/cluster-info/B").json() == by_id
    assert client.get("/v2/cluster-info/X").status_code == 404


def test_who_has_an_answer_already_gets_none(client: TestClient) -> None:
    first = client.get("/v2/flows/P/B/topics")
    again = client.get("/v2/flows/P/B/topics", headers={"If-None-Match": first.headers["ETag"]})

    assert (again.status_code, again.content) == (304, b"")
    other = client.get("/v2/flows/P/B/topics", headers={"If-None-Match": '"other"'})
    assert other.content == first.content


def test_lists_come_in_parts_that_match_a_search(world: CopiedTopic) -> None:
    look = look_at(world.forward)
    assert look.view is not None
    [topic] = look.view.status.topics
    topics = tuple(
        replace(topic, topic=f"t{n}", remote_topic=f"P.t{n}", remaining=n) for n in range(30)
    )
    view = replace(look.view, status=replace(look.view.status, topics=topics))
    client = TestClient(create_app(still_views(replace(look, view=view))))

    part = client.get("/v2/flows/P/B/topics?search=T1&offset=2&limit=3").json()
    assert [row["topic"] for row in part["items"]] == ["t11", "t12", "t13"]
    assert (part["total"], part["offset"]) == (11, 2)
    worst = client.get("/v2/flows/P/B/topics?sort=lag&order=desc&limit=2").json()
    assert [row["topic"] for row in worst["items"]] == ["t29", "t28"]
    assert client.get("/v2/flows/P/B/topics?state=stopped").json()["total"] == 0


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("/v2/flows/P/X", 404, "cluster 'X' is not watched here, only B"),
        ("/v2/flows/X/B", 404, "flow X->B is not watched here; flows: P->B"),
        ("/v2/flows/P/P", 400, "P"),
        ("/v2/flows/P/B/topics/none", 404, "'none' is not copied by P->B"),
        ("/v2/flows/P/B/groups/none", 404, "group 'none' has no checkpoint"),
        ("/v2/flows/P/B/topics?limit=0", 422, "limit"),
        ("/v2/topic-metrics/P/B/Topic/speed", 422, "metric"),
        ("/v2/cluster-metrics/P/B/byte-rate?from_ms=9&to_ms=3", 400, "from_ms 9 is after to_ms 3"),
        ("/v2/moves/none", 404, "move 'none' is not known on B"),
        ("/nothing", 404, "Not Found"),
    ],
)
def test_errors_are_problem_documents(
    client: TestClient, path: str, status: int, says: str
) -> None:
    answer = client.get(path)

    assert answer.status_code == status
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json()["status"] == status
    assert says in answer.json()["detail"]


def test_a_group_may_have_a_longer_name_than_topics_have(client: TestClient) -> None:
    found = client.get("/v2/flows/P/B/groups", params={"search": "x" * 255})

    assert (found.status_code, found.json()["total"]) == (200, 0)


def test_before_the_first_look_it_says_so_and_to_retry() -> None:
    views = still_views(FlowLook(P_TO_B, flow_config(), error="cluster B does not answer"))
    client = TestClient(create_app(views))

    [flow] = client.get("/v2/flows").json()["items"]
    topics = client.get("/v2/flows/P/B/topics")

    assert (flow["state"], flow["error"]) == ("UNKNOWN", "cluster B does not answer")
    assert (topics.status_code, topics.headers["Retry-After"]) == (503, "5")
    assert "cluster B does not answer" in topics.json()["detail"]
    health = client.get("/health")
    again = client.get("/health", headers={"If-None-Match": health.headers["ETag"]})
    assert health.status_code == again.status_code == 503
    assert (
        again.json()
        == health.json()
        == {
            "ready": False,
            "targets": [{"target": "B", "looked_ms": 0, "error": ""}],
        }
    )


def test_what_was_seen_stays_with_the_reason_why_it_is_old(world: CopiedTopic) -> None:
    look = replace(look_at(world.forward), error="cluster B: timed out")

    flow = TestClient(create_app(still_views(look))).get("/v2/flows/P/B").json()

    assert (flow["lag"], flow["error"]) == (3, "cluster B: timed out")
    assert flow["state"] == "UNKNOWN", "running is what it was before its target went away"
    assert flow["reasons"] == [
        {
            "text": "latest look failed: cluster B: timed out",
            "action": "check the brokers of B and the connection to them",
        }
    ]


def test_whether_a_group_could_go_on_is_not_known_while_the_target_does_not_answer(
    world: CopiedTopic,
) -> None:
    look = replace(look_at(world.forward), error="cluster B: timed out")

    answer = TestClient(create_app(still_views(look))).get("/v2/flows/P/B/groups").json()

    [group] = answer["items"]
    assert group["can_go_on"] is None
    assert group["reason"] == "latest look failed: cluster B: timed out"
    assert group["by_commits"], "what was seen last stays"


def test_the_documentation_of_the_api_loads_nothing_from_elsewhere(client: TestClient) -> None:
    page = client.get("/docs")

    assert page.status_code == 200
    policy = page.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'self';")
    assert "frame-ancestors 'self'" in policy
    assert "//" not in page.text.replace("http://", "").replace("<!-- ", "").split("<script>")[0]
    assert client.get("/openapi.json").json()["info"]["title"] == "SRM Service"


def test_no_secret_of_the_configuration_is_told(client: TestClient) -> None:
    assert "hunter2" in str(dict(config_of(P_TO_B).client("B", "admin")))
    names = defaultdict(
        lambda: "x", source="P", target="B", topic="Topic", group="audit", metric="byte-rate"
    )
    for path in client.get("/openapi.json").json()["paths"]:
        filled = path.format_map(names)
        assert "hunter2" not in client.get(filled).text


def test_why_is_asked_of_the_flows_that_are_watched(world: CopiedTopic, views: Views) -> None:
    app = create_app(views)
    app.state.explaining = Explaining(
        views.config, lambda _config, _flow, name, kinds: explain(world.forward, name, kinds)
    )
    client = TestClient(app)

    [answer] = client.get("/v2/why/topic/P.Topic?flow=P->B").json()
    missing = client.get("/v2/why/group/audits")

    assert (answer["subject"], answer["asked"]) == ("Topic", "P.Topic")
    assert {step["name"] for step in answer["steps"]} >= {"enabled", "exists"}
    assert missing.status_code == 404
    assert "did you mean group audit" in missing.json()["detail"]
    assert client.get("/v2/why/topic/Topic?flow=P->X").status_code == 404
    assert client.get("/v2/why/topic/Topic?flow=P").status_code == 400
