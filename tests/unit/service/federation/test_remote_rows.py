"""What another service tells counts for its own target, and takes no answer away from others."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
import pytest
from tests import service_site
from tests.service_views import config_of, still_views
from tests.unit.engine.copying_records import CopiedTopic
from tests.unit.service.federation.sites import (
    FLOWS,
    Answering,
    Site,
    announced,
    flows,
    hang,
    site_rows,
    three_services,
)

from srm.config.model import ServiceSettings
from srm.domain.moves.disaster import Drill
from srm.domain.text.documents import encode
from srm.service.app import create_app
from srm.service.federation.federation import Joining
from srm.service.views.flow_rows import drill_row, move_row

HERE = ["B->P", "C->P", "P->C"]
"""What is told without the service of B."""


@pytest.fixture
def site(world: CopiedTopic) -> Site:
    return three_services(world)


def telling(*rows: Any, total: int | None = None) -> Answering:
    """Answer whatever is asked for with these rows, be they dictionaries or documents."""
    count = len(rows) if total is None else total
    page = {"items": rows, "total": count, "offset": 0, "missing": {}}
    return saying(json.dumps(page, default=vars_of))


def saying(text: str) -> Answering:
    async def answer(_: httpx.Request) -> httpx.Response:
        headers = {"Content-Type": "application/json"}
        return httpx.Response(200, content=text.encode(), headers=headers)

    return answer


def vars_of(row: Any) -> Any:
    return json.loads(encode(row))


class TestOfWhom:
    """A service speaks for the target on whose cluster it is announced, and for no other."""

    def test_a_flow_of_another_target_counts_for_nothing(self, site: Site) -> None:
        [row] = site_rows(site)
        lie = {**row, "flow": "P->C", "target": "C", "state": "OFF", "lag": 0}
        own = {**row, "flow": "B->P", "source": "B", "target": "P", "state": "OFF"}
        site.network.hosts["srm-b"] = telling(lie, own, row)

        with site.gateway() as gateway:
            told = gateway.get("/v2/flows").json()
            page = gateway.get("/ui").text
            touching = gateway.get("/v2/cluster-info/P").json()

        assert [r["flow"] for r in told["items"]] == ["B->P", "C->P", "P->B", "P->C"]
        assert (told["total"], told["missing"]) == (4, {})
        assert "OFF" not in {r["state"] for r in told["items"]}
        assert "state-off" not in page
        assert touching["outgoing"] == ["P->B", "P->C"]

    def test_a_series_of_another_target_counts_for_nothing(self, site: Site) -> None:
        with site.gateway() as gateway:
            honest = gateway.get("/cluster-metrics/P/byte-rate").json()
            lie = {**honest[1], "unit": "of a stranger"}
            site.network.hosts["srm-b"] = saying(json.dumps([lie, honest[0]]))

            assert gateway.get("/cluster-metrics/P/byte-rate").json() == honest

    def test_a_copy_of_another_target_counts_for_nothing(self, site: Site) -> None:
        copy = {"source": "P", "topic": "Secret", "remote_topic": "P.Secret", "partitions": 1}
        site.network.hosts["srm-b"] = telling({**copy, "target": "B"}, {**copy, "target": "C"})

        with site.gateway() as gateway:
            told = gateway.get("/v2/remote-topics?search=secret").json()

        assert [(row["target"], row["topic"]) for row in told["items"]] == [("B", "Secret")]
        assert told["total"] == 1

    def test_a_move_or_drill_between_others_counts_for_nothing(self, site: Site) -> None:
        move = move_row(service_site.moving(1000))
        drill = drill_row(Drill("d-1", "P->B", "done", 1000, "host", 7))
        strange = (replace(move, source="P", target="C"), replace(drill, flow="B->C"))
        near = (replace(move, move_id="m-2", source="B", target="C"), drill)

        with site.gateway() as gateway:
            for path, row, other in zip(("moves", "drills"), near, strange, strict=True):
                site.network.hosts["srm-b"] = telling(row, other)
                site.network.hosts["srm-c"] = telling()
                told = gateway.get(f"/v2/{path}").json()
                assert (told["items"], told["total"]) == ([vars_of(row)], 1)

    def test_a_cluster_is_described_by_its_own_service(self, site: Site) -> None:
        with site.gateway() as gateway:
            honest = gateway.get("/v2/cluster-info/id-of-C").json()
            lie = json.dumps({**honest, "looked_ms": 1})
            site.network.hosts["srm-b"] = saying(lie)

            told = gateway.get("/v2/cluster-info/id-of-C", headers={"If-None-Match": "*"})
            assert told.status_code == 304
            told = gateway.get("/v2/cluster-info/id-of-C")
            assert told.json()["looked_ms"] == honest["looked_ms"] != 1

    @pytest.mark.parametrize("path", ["m-1", "m-1/report"])
    def test_a_move_is_told_by_the_services_of_its_clusters(self, site: Site, path: str) -> None:
        ends = {"source": "P", "target": "C"}
        move = {"move_id": "m-1", **ends} if "/" in path else {"row": {"move_id": "m-1", **ends}}
        there = saying(json.dumps(move))
        with site.gateway() as gateway:
            site.network.hosts["srm-b"] = there
            assert gateway.get(f"/v2/moves/{path}").status_code == 404

            site.network.hosts["srm-c"] = there
            told = gateway.get(f"/v2/moves/{path}", headers={"If-None-Match": "*"})
            assert (told.status_code, told.json()) == (200, move)

    @pytest.mark.parametrize("text", ["5", "{}", '{"row":5}', "[" * 100_000])
    def test_what_is_no_move_is_told_of_no_move(self, site: Site, text: str) -> None:
        site.network.hosts["srm-b"] = saying(text)

        with site.gateway() as gateway:
            assert gateway.get("/v2/moves/m-1").status_code in {404, 503}


class TestBadAnswers:
    """A service that answers badly is missing by name; what others say is told."""

    @pytest.mark.parametrize(
        "change",
        [
            {"flow": "junk"},
            {"flow": "P->C"},
            {"flow": "P->P", "source": "P", "target": "P"},
            {"flow": "../x->B", "source": "../x"},
            {"flow": "->B", "source": ""},
            {"flow": "x" * 100_000},
            {"state": "EVIL"},
            {"lag": 10**400},
            {"lag": 2**63},
            {"looked_ms": None},
        ],
        ids=lambda change: str(change)[:60],
    )
    def test_one_row_that_nobody_can_read_makes_its_service_missing(
        self, site: Site, change: dict[str, Any]
    ) -> None:
        [row] = site_rows(site)
        site.network.hosts["srm-b"] = telling({**row, **change})

        self.assert_b_is_missing(site)

    @pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "1e308"])
    def test_a_figure_that_is_not_finite_makes_its_service_missing(
        self, site: Site, number: str
    ) -> None:
        [row] = site_rows(site)
        figures = {"min": 1, "max": 1, "avg": 1.5, "sum": 1, "count": 1}
        names = ("byte_rate", "replication_latency_ms", "checkpoint_latency_ms")
        measured = dict.fromkeys((*names, "replication_records_lag"), figures)
        row["measured"] = measured | {"start_ms": 1, "end_ms": 2, "records": 1, "bytes": 1}
        page = {"items": [row], "total": 1, "offset": 0, "missing": {}}
        site.network.hosts["srm-b"] = saying(json.dumps(page).replace("1.5", number))

        self.assert_b_is_missing(site)

    @pytest.mark.parametrize("text", ["[" * 100_000, "", "{}", '{"items":5}', "9" * 100_000])
    def test_what_is_no_list_makes_its_service_missing(self, site: Site, text: str) -> None:
        site.network.hosts["srm-b"] = saying(text)

        self.assert_b_is_missing(site)

    @pytest.mark.parametrize("total", [-5, 0, 2])
    def test_more_rows_than_there_are_make_their_service_missing(
        self, site: Site, total: int
    ) -> None:
        [row] = site_rows(site)
        site.network.hosts["srm-b"] = telling(row, row, row, total=total)

        self.assert_b_is_missing(site)

    def assert_b_is_missing(self, site: Site) -> None:
        with site.gateway() as gateway:
            told = gateway.get("/v2/flows").json()
            page = gateway.get("/ui")

        assert [row["flow"] for row in told["items"]] == HERE
        assert told["missing"].keys() == {"B"}
        assert len(told["missing"]["B"]) < 400
        assert page.status_code == 200
        assert "latest look failed" in page.text

    def test_a_moment_that_no_calendar_has_is_shown(self, site: Site) -> None:
        [row] = site_rows(site)
        for looked_ms in (10**18, -(10**18)):
            site.network.hosts["srm-b"] = telling({**row, "error": "away", "looked_ms": looked_ms})

            with site.gateway() as gateway:
                assert gateway.get("/ui").status_code == 200
                assert "P->B" in flows(gateway)

    def test_so_many_flows_that_their_boxes_overlap_are_drawn(self, site: Site) -> None:
        [row] = site_rows(site)
        sources = [f"x{number}" for number in range(300)]
        rows = [{**row, "source": source, "flow": f"{source}->B"} for source in sources]
        site.network.hosts["srm-b"] = telling(*rows)

        with site.gateway() as gateway:
            assert gateway.get("/ui").status_code == 200


class TestHowMuch:
    """Of one target there is a limit to rows, bytes and time, however many parts they come in."""

    def test_more_rows_than_asked_for_are_refused(self, site: Site) -> None:
        [row] = site_rows(site)
        site.network.hosts["srm-b"] = telling(row, row)

        with site.gateway() as gateway:
            told = gateway.get("/v2/flows?limit=1").json()

        assert told["missing"] == {"B": "its service answers with 2 rows, maximum 1"}

    def test_parts_without_end_end_at_a_limit_of_bytes(self, site: Site) -> None:
        [row] = site_rows(site)
        site.network.hosts["srm-b"] = telling(*[row] * 1000, total=10**15)

        with site.gateway() as gateway:
            told = gateway.get("/v2/flows?offset=90000").json()

        assert "it answers with more than" in told["missing"]["B"]
        assert len(site.network.asked("srm-b")) < 60

    def test_all_parts_together_have_one_limit_of_time(self, site: Site) -> None:
        site.patience = timedelta(seconds=0.5)
        [row] = site_rows(site)
        whole = telling(*[row] * 1000, total=10**15)

        async def first_part_alone(request: httpx.Request) -> httpx.Response:
            is_first = request.url.params["offset"] == "0"
            return await (whole if is_first else hang)(request)

        site.network.hosts["srm-b"] = first_part_alone

        with site.gateway() as gateway:
            told = gateway.get("/v2/flows?offset=90000").json()

        assert told["missing"]["B"] == "no complete answer within 1 s"

    def test_an_offset_behind_all_that_is_gathered_is_no_reason_to_ask(self, site: Site) -> None:
        with site.gateway() as gateway:
            told = gateway.get("/v2/flows?offset=1000000000")

            assert told.status_code == 400
            assert "the first 100,000 rows" in told.json()["detail"]
            assert not site.network.requests
            there = gateway.get("/internal/v2/flows?offset=1000000000")
            assert (there.status_code, there.json()["total"]) == (200, 2)


class TestMoves:
    """A move is known on both of its clusters, and is one move in lists."""

    def site(self, world: CopiedTopic, here: list[Any], there: list[Any]) -> Site:
        """A site where P's service knows some moves, and B's others."""
        site = three_services(world)
        config = replace(config_of(*FLOWS), service=ServiceSettings())
        views = still_views(site.looks["PB"], moves={"B": there}, config=config)
        site.network.serve("srm-b", create_app(views, joining=Joining()))
        own = still_views(
            *(site.looks[flow] for flow in ("BP", "CP")),
            moves={"P": here},
            config=replace(config_of(*FLOWS), service=site.service),
        )
        site.views = lambda *_: own  # type: ignore[method-assign]
        return site

    def test_all_are_counted_once_whatever_part_is_asked_for(self, world: CopiedTopic) -> None:
        past = next(iter(service_site.past_moves(10**9)))
        moves = [
            replace(past, plan=replace(past.plan, move_id=f"m{n}", created_ms=1000 - n))
            for n in range(5)
        ]
        with self.site(world, moves[:4], moves[1:]).gateway() as gateway:
            parts = [gateway.get(f"/v2/moves?limit=1&offset={n}").json() for n in range(6)]

        assert [part["total"] for part in parts] == [5] * 6
        assert [row["move_id"] for part in parts for row in part["items"]] == [
            move.plan.move_id for move in moves
        ]

    def test_one_that_has_ended_here_does_not_run_elsewhere(self, world: CopiedTopic) -> None:
        past = next(iter(service_site.past_moves(10**9)))
        stale = replace(past, progress=replace(past.progress, step="holding"), report=None)

        with self.site(world, [past], [stale]).gateway() as gateway:
            told = {
                which: gateway.get(f"/v2/moves?which={which}").json()
                for which in ("all", "running", "ended")
            }

        assert {which: page["total"] for which, page in told.items()} == {
            "all": 1,
            "running": 0,
            "ended": 1,
        }
        assert told["ended"]["items"][0]["step"] == past.progress.step

    @pytest.mark.parametrize(
        ("source", "target", "step"), [("B", "P", "held"), ("P", "B", "reported")]
    )
    def test_only_where_a_move_is_decided_somebody_may_know_more_of_it_than_this_service(
        self, world: CopiedTopic, source: str, target: str, step: str
    ) -> None:
        """The one at the other end may lie, or P be away since its clients were held."""
        moving = service_site.moving(1000)
        request = replace(moving.plan.request, source=source, target=target)
        moving = replace(moving, plan=replace(moving.plan, request=request))
        ended = replace(move_row(moving), step="reported", ended=True, ok=True)
        site = self.site(world, [moving], [])
        site.network.hosts["srm-b"] = telling(ended)

        with site.gateway() as gateway:
            [row] = gateway.get("/v2/moves").json()["items"]

        assert row["step"] == step

    def test_of_two_others_the_one_at_the_target_of_a_move_is_believed(
        self, world: CopiedTopic
    ) -> None:
        moving = move_row(service_site.moving(1000))
        moving = replace(moving, source="B", target="C")
        ended = replace(moving, step="reported", ended=True, ok=True)
        for first, second in ((moving, ended), (ended, moving)):
            site = self.site(world, [], [])
            site.network.hosts |= {"srm-b": telling(first), "srm-c": telling(second)}

            with site.gateway() as gateway:
                [row] = gateway.get("/v2/moves").json()["items"]

            assert row["step"] == second.step


def test_a_service_that_watches_two_targets_tells_each_as_what_it_is(site: Site) -> None:
    site.serve("srm-d", "PB", "PC")
    both = announced("srm-d", "B", "C")
    site.known.by_target = {"B": (both,), "C": (both,)}

    with site.gateway() as gateway:
        assert flows(gateway) == ["B->P", "C->P", "P->B", "P->C"]
