"""What a group has committed on both sides, asked for when somebody looks at that group."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from fastapi.testclient import TestClient
from tests.loops import happens, pass_time, run_still
from tests.service_views import config_of, look_at, still_views
from tests.unit.engine.copying_records import CopiedTopic

from srm.config.model import Config
from srm.domain.moves.plan import LastPlace
from srm.domain.names.topics import Flow, TopicPartition
from srm.errors import SrmError
from srm.service.access.access import AT_ONCE
from srm.service.app import create_app
from srm.service.views import watching
from srm.service.views.flow_rows import Committed, GroupCommits, group_detail
from srm.service.views.views import Views
from srm.service.views.watching import CommittedOffsets

FLOW = Flow("P", "B")
PATIENCE_S = 5.0


class Clusters:
    """Both clusters of a world, and how often they were asked; one may be away."""

    def __init__(self, world: CopiedTopic) -> None:
        self.asked: list[str] = []
        self.away = ""
        self._of = {"P": world.p, "B": world.b}

    def __call__(self, _config: Config, _flow: Flow, alias: str, group: str) -> Committed:
        self.asked.append(alias)
        if alias == self.away:
            return Committed(error=f"{alias} does not answer")
        return Committed(self._of[alias].committed_offsets(group))


@pytest.fixture
def clusters(world: CopiedTopic, views: Views, client: TestClient) -> Clusters:
    made = Clusters(world)
    client.app.state.committed = CommittedOffsets(views.config, made)  # type: ignore[attr-defined]
    return made


def test_a_group_shows_its_offsets_on_both_sides_next_to_its_checkpoint(
    client: TestClient, world: CopiedTopic, clusters: Clusters
) -> None:
    world.p.commit("audit", {TopicPartition("Topic", 0): 9})
    world.b.commit("audit", {TopicPartition("P.Topic", 0): 5})

    group = client.get("/v2/flows/P/B/groups/audit").json()
    page = client.get("/ui/flows/P/B/groups/audit").text

    [position] = group["positions"]
    assert (position["committed"], position["checkpointed"], position["target_committed"]) == (
        9,
        8,
        5,
    )
    assert group["unread"] == {}
    assert "8 by the checkpoint" in page
    assert sorted(clusters.asked) == ["B", "P"], "the page is answered by what the route has asked"


@pytest.mark.usefixtures("clusters")
def test_what_is_read_again_is_by_the_commits_that_stand_next_to_it(
    client: TestClient, world: CopiedTopic
) -> None:
    """B held two records behind the checkpoint when it was looked at, and P has gone on since."""
    world.p.commit("audit", {TopicPartition("Topic", 0): 12})

    group = client.get("/v2/flows/P/B/groups/audit").json()
    page = client.get("/ui/flows/P/B/groups/audit").text

    assert [one["records_read_again"] for one in group["positions"]] == [4]
    assert group["row"]["records_read_again"] == 4
    assert (
        "If P failed now, it would read 4 records again, plus those since its last commit" in page
    )
    assert "by its commits" in page


@pytest.mark.usefixtures("clusters")
def test_the_lag_of_a_group_is_to_the_end_of_the_source_and_what_is_to_read_to_that_of_the_target(
    client: TestClient, world: CopiedTopic
) -> None:
    world.p.commit("audit", {TopicPartition("Topic", 0): 9})

    group = client.get("/v2/flows/P/B/groups/audit").json()
    page = client.get("/ui/flows/P/B/groups/audit").text

    assert [(one["lag"], one["to_read"]) for one in group["positions"]] == [(13 - 9, 10 - 8)]
    assert "lag 4" in page
    assert "2 to read" in page


def test_where_its_commits_are_not_known_neither_is_its_lag(
    client: TestClient, clusters: Clusters
) -> None:
    clusters.away = "P"

    [position] = client.get("/v2/flows/P/B/groups/audit").json()["positions"]
    page = client.get("/ui/flows/P/B/groups/audit").text

    assert (position["lag"], position["to_read"]) == (None, 2)
    assert "lag " not in page


@pytest.mark.usefixtures("clusters")
def test_a_group_that_has_gone_past_what_the_last_look_saw_has_no_lag_below_zero(
    client: TestClient, world: CopiedTopic
) -> None:
    world.write(b"13", b"14")
    world.p.commit("audit", {TopicPartition("Topic", 0): 15})

    [position] = client.get("/v2/flows/P/B/groups/audit").json()["positions"]

    assert position["lag"] == 0


@pytest.mark.usefixtures("clusters")
def test_of_a_group_that_has_committed_nothing_since_its_checkpoint_nothing_is_read_again(
    client: TestClient,
) -> None:
    group = client.get("/v2/flows/P/B/groups/audit").json()

    assert group["positions"][0]["committed"] == group["positions"][0]["checkpointed"] == 8
    assert group["row"]["records_read_again"] == 0


def test_where_its_place_by_the_checkpoint_is_not_known_what_it_read_since_the_look_comes_on_top(
    world: CopiedTopic,
) -> None:
    """The target alone was written last: B holds four records from there on, of ten on P."""
    seen = look_at(world.forward)
    assert seen.view is not None
    outlook = seen.view.outlook
    assert outlook is not None
    [place] = outlook.last_places("audit")
    source = replace(outlook.away, places={"audit": {place: LastPlace(6, None)}})
    outlook = replace(outlook, source=source)
    look = replace(seen, view=replace(seen.view, outlook=outlook))
    since = GroupCommits(Committed({TopicPartition("Topic", 0): 12}))

    detail = group_detail(look, "audit", since)

    assert detail is not None
    [position] = detail.positions
    assert (position.checkpointed, position.resume, position.committed) == (None, 6, 12)
    assert position.records_read_again == 12 - 6


def test_where_its_commits_are_not_known_all_behind_the_checkpoint_is_an_unread_backlog(
    world: CopiedTopic,
) -> None:
    world.p.fail()
    client = TestClient(create_app(still_views(look_at(world.forward))))

    [group] = client.get("/v2/flows/P/B/groups").json()["items"]

    assert (group["records_read_again"], group["by_commits"]) == (2, False)
    assert "unread backlog" in client.get("/ui/flows/P/B/groups").text


def test_a_cluster_that_does_not_answer_is_named_and_the_checkpoint_shown(
    client: TestClient, clusters: Clusters
) -> None:
    clusters.away = "P"

    group = client.get("/v2/flows/P/B/groups/audit").json()
    page = client.get("/ui/flows/P/B/groups/audit").text

    assert group["unread"] == {"P": "P does not answer"}
    assert (group["positions"][0]["committed"], group["positions"][0]["checkpointed"]) == (None, 8)
    assert "Committed on P is not known: P does not answer" in page


def test_where_a_group_has_committed_nothing_the_page_says_so(
    client: TestClient, clusters: Clusters
) -> None:
    page = client.get("/ui/flows/P/B/groups/audit").text

    assert "the group has no committed offset there" in page
    assert sorted(clusters.asked) == ["B", "P"]


def test_no_cluster_is_asked_for_a_group_that_no_checkpoint_names(
    client: TestClient, clusters: Clusters
) -> None:
    assert client.get("/v2/flows/P/B/groups/nobody").status_code == 404
    assert clusters.asked == []


def test_a_source_that_is_known_not_to_answer_is_not_asked(clusters: Clusters) -> None:
    offsets = CommittedOffsets(config_of(FLOW), clusters)

    found = asyncio.run(offsets.of(FLOW, "audit", "P is away"))

    assert found == GroupCommits(Committed(error="P is away"), Committed({}))
    assert clusters.asked == ["B"]


def test_a_cluster_that_refuses_or_is_away_is_told_with_its_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()

    def opened(*_: object) -> object:
        raise SrmError("no right to describe it")

    monkeypatch.setattr(watching, "KafkaCluster", opened)

    assert watching.query_cluster(config_of(FLOW), FLOW, "P", "audit") == Committed(
        error="no right to describe it"
    )


class Hanging:
    """Clusters of which some do not answer before they are let."""

    def __init__(self, *away: str) -> None:
        self.asked: list[str] = []
        self._away = away
        self._answers = threading.Event()

    def __call__(self, _config: Config, _flow: Flow, alias: str, group: str) -> Committed:
        self.asked.append(f"{alias}:{group}")
        if alias in self._away:
            assert self._answers.wait(60)
        return Committed({TopicPartition("Topic", 0): len(group)})

    @contextmanager
    def let(self) -> Iterator[None]:
        """Let them answer in the end, so that no thread is left behind."""
        try:
            yield
        finally:
            self.answer()

    def answer(self) -> None:
        self._answers.set()

    async def in_vain(self, offsets: CommittedOffsets, *groups: str) -> list[GroupCommits]:
        """Ask for groups until the patience is over; of B, if that answers, they are known."""
        if "B" not in self._away:
            await asyncio.gather(*(offsets.of(FLOW, group, "not asked") for group in groups))
        asking = [asyncio.create_task(offsets.of(FLOW, group)) for group in groups]
        hang = len(self._away) * min(AT_ONCE, len(groups))
        await happens(lambda: sum(one[0] in self._away for one in self.asked) == hang, "the calls")
        await pass_time(PATIENCE_S)
        assert all(one.done() for one in asking)
        return [one.result() for one in asking]

    async def answer_late(self) -> None:
        self.answer()
        await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()})


def _both(found: GroupCommits) -> tuple[str, str]:
    return found.source.error, found.target.error


def test_of_two_clusters_that_hang_nobody_waits_for_one_after_the_other() -> None:
    hanging = Hanging("P", "B")
    offsets = CommittedOffsets(config_of(FLOW), hanging, PATIENCE_S)

    with hanging.let():
        [found] = run_still(hanging.in_vain(offsets, "pay"))

    assert sorted(hanging.asked) == ["B:pay", "P:pay"]
    assert _both(found) == tuple(f"cluster {a} has not answered within 5 s" for a in "PB")


def test_whoever_comes_while_a_group_is_asked_for_waits_for_the_same_answer() -> None:
    hanging = Hanging("P", "B")
    offsets = CommittedOffsets(config_of(FLOW), hanging)

    async def twenty() -> list[GroupCommits]:
        asking = [asyncio.create_task(offsets.of(FLOW, "pay")) for _ in range(20)]
        await happens(lambda: len(hanging.asked) == 2, "both are asked")
        hanging.answer()
        return await asyncio.gather(*asking)

    with hanging.let():
        found = run_still(twenty())

    assert sorted(hanging.asked) == ["B:pay", "P:pay"]
    assert len(set(map(_both, found))) == 1
    assert found[0].source.offsets == {TopicPartition("Topic", 0): 3}


def test_after_one_has_waited_in_vain_nobody_waits_for_that_cluster_and_the_other_answers() -> None:
    hanging = Hanging("P")
    offsets = CommittedOffsets(config_of(FLOW), hanging, PATIENCE_S)

    async def many() -> list[GroupCommits]:
        await hanging.in_vain(offsets, "first")
        asking = (offsets.of(FLOW, f"g{number:03}") for number in range(20))
        return await asyncio.gather(*asking)

    with hanging.let():
        found = run_still(many())

    assert [_both(one) for one in found] == [("cluster P has not answered within 5 s", "")] * 20
    assert [one for one in hanging.asked if one[0] == "P"] == ["P:first"]
    assert all(one.target.offsets for one in found)


def test_a_late_answer_serves_the_next_who_asks() -> None:
    hanging = Hanging("P")
    offsets = CommittedOffsets(config_of(FLOW), hanging, PATIENCE_S)

    async def again() -> GroupCommits:
        await hanging.in_vain(offsets, "pay")
        await hanging.answer_late()
        return await offsets.of(FLOW, "pay")

    with hanging.let():
        assert run_still(again()).source.offsets == {TopicPartition("Topic", 0): 3}
    assert sorted(hanging.asked) == ["B:pay", "P:pay"]


def test_a_burst_on_a_cluster_that_hangs_waits_once_and_leaves_the_other_alone() -> None:
    hanging = Hanging("P")
    offsets = CommittedOffsets(config_of(FLOW), hanging, PATIENCE_S)

    with hanging.let():
        found = run_still(hanging.in_vain(offsets, *(f"g{number}" for number in range(12))))

    assert all(one.source.error and one.target.offsets for one in found)
    assert sum(one[0] == "P" for one in hanging.asked) == AT_ONCE


def test_a_cluster_that_stays_silent_is_asked_again_by_one_who_hardly_waits_until_it_is_back() -> (
    None
):
    hanging = Hanging("P")
    offsets = CommittedOffsets(config_of(FLOW), hanging, PATIENCE_S)

    async def silent_then_back() -> GroupCommits:
        await hanging.in_vain(offsets, "first")
        await pass_time(10)
        second = asyncio.create_task(offsets.of(FLOW, "second"))
        await happens(lambda: "P:second" in hanging.asked, "it is asked again")
        await pass_time(PATIENCE_S / 10)
        await happens(second.done, "it has hardly waited")
        assert second.result().source.error
        await hanging.answer_late()
        return await offsets.of(FLOW, "third")

    with hanging.let():
        back = run_still(silent_then_back())

    assert back.source.offsets == {TopicPartition("Topic", 0): 5}
