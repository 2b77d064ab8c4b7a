"""The pages show what other services watch as far as those say it, and lead to them."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient
from tests.unit.engine.copying_records import CopiedTopic
from tests.unit.service.federation.sites import Site, announced, refuse, three_services
from tests.unit.service.pages.reading import Outline, words

from srm.service.app import create_app
from srm.service.federation.federation import Joining
from srm.service.pages.figures import NONE

B, C = "http://srm-b:6670", "http://srm-c:6670"


@pytest.fixture
def site(world: CopiedTopic) -> Site:
    return three_services(world)


def test_the_overview_has_the_flows_of_all_services_and_leads_to_their_pages(site: Site) -> None:
    with site.gateway() as gateway:
        page = Outline(gateway.get("/ui").text)

    assert f"{B}/ui/flows/P/B" in page.links
    assert f"{C}/ui/flows/P/C/groups" in page.links
    assert "/ui/flows/B/P" in page.links
    assert "/ui/flows/P/B" not in page.links
    assert f"watched by {B}" in page.words
    assert "latest look failed" not in page.words


def test_a_flow_whose_service_does_not_answer_is_unknown_not_well(site: Site) -> None:
    site.network.hosts["srm-c"] = refuse

    with site.gateway() as gateway:
        read = words(gateway.get("/ui").text)

    assert "P → C is unknown: latest look failed" in read
    assert "http://srm-c:6670: connection refused" in read
    assert f"Unknown lag {NONE}" in read
    assert f"Unknown {NONE} {NONE} {NONE} " in read  # not that it has no topics, groups and lag


def test_a_page_of_a_flow_that_another_service_watches_leads_there(site: Site) -> None:
    with site.gateway() as gateway:
        answered = gateway.get("/ui/flows/P/B/groups/my group")

    assert answered.status_code == 404
    page = Outline(answered.text)
    assert f"{B}/ui/flows/P/B/groups/my%20group" in page.links
    assert "Another service watches this" in page.words


def test_nobody_is_sent_to_a_host_that_the_configuration_does_not_name(site: Site) -> None:
    site.known.by_target["B"] = (announced("evil.example.org", "B"),)

    with site.gateway() as gateway:
        for path in ("/ui", "/ui/moves", "/ui/flows/P/B"):
            assert "http://evil" not in "".join(Outline(gateway.get(path).text).links)


def test_the_moves_page_names_the_services_that_may_know_more(site: Site) -> None:
    with site.gateway() as gateway:
        assert f"{C}/ui/moves" in Outline(gateway.get("/ui/moves").text).links


def test_without_remote_querying_the_overview_says_what_it_does_not_watch(site: Site) -> None:
    with TestClient(create_app(site.views("BP"), joining=Joining())) as client:
        read = words(client.get("/ui").text)

    assert "does not watch P → B, P → C ( service.targets)" in read
    assert "service.remote.querying.enabled" in read
