"""The pages over real brokers: real data, that moves as records are written and copied."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from playwright.sync_api import expect
from tests.browser.conftest import OpenPage
from tests.integration.moving import Site
from tests.served import served
from tests.waiting import eventually

from srm.domain.names.topics import Flow
from srm.engine.groups.checkpoints import emit
from srm.service.app import create_app
from srm.service.pages.figures import NONE
from srm.service.views.views import Views
from srm.wiring import open_flow
from srm_lab.stack.kafka import KafkaBroker

pytestmark = [pytest.mark.browser, pytest.mark.kafka, pytest.mark.integration]


@pytest.fixture
def site(clusters: Mapping[str, KafkaBroker], tmp_path: Path) -> Iterator[Site]:
    with Site(clusters, tmp_path) as made:
        yield made


def produce(site: Site, records: int) -> None:
    producer = Producer(site.config.client(site.p, "producer"))
    for number in range(records):
        producer.produce(site.topic, b"%d" % number, key=str(number))
    producer.flush()


def test_what_is_written_copied_and_committed_is_seen_without_a_reload(
    site: Site, open_page: OpenPage
) -> None:
    flow, views = Flow(site.p, site.b), Views(site.config)
    with served(create_app(views)) as address:
        eventually(lambda: all(one.looked_ms for one in views.targets), "it has looked at both")
        page = open_page()
        page.goto(f"{address}/ui")
        expect(page.locator("h1")).to_have_text("2 of 2 flows need attention")
        expect(page.locator(".alerts")).to_contain_text("no replicator has ever run")

        # Other tests have left topics that match as well, and a page shows the first of many.
        page.goto(f"{address}/ui/flows/{flow.source}/{flow.target}?search={site.topic}")
        page.evaluate("window.sameDocument = true")
        row = page.locator(f"#topic-{site.topic}")
        expect(row.locator('[data-label="Lag"]')).to_have_text("0")
        produce(site, 120)
        expect(row.locator('[data-label="Lag"]')).to_have_text("120")
        with site.replicating(flow):
            expect(row.locator('[data-label="Lag"]')).to_have_text("0")
            expect(row).to_contain_text("Running")
            assert page.evaluate("window.sameDocument")

            group = site.group("audit")
            consumer = Consumer({**site.config.client(site.p, "consumer"), "group.id": group})
            consumer.commit(offsets=[KafkaPartition(site.topic, 0, 5)], asynchronous=False)
            consumer.close()
            with open_flow(site.config, flow) as context:
                emit(context)
            page.goto(f"{address}/ui/flows/{flow.source}/{flow.target}/groups")
            expect(page.get_by_role("link", name=group)).to_be_visible()
            page.get_by_role("link", name=group).click()
        expect(page.locator("#positions tbody tr").first).to_contain_text(f"{site.topic}-0")
        expect(page.locator('#position-1 [data-label="Would resume at"]')).not_to_have_text(NONE)
        expect(page.locator("[data-why]")).to_have_attribute("aria-busy", "false")
        expect(page.locator(".chain li").first).to_be_visible()
        page.close()  # it looks for news as long as it is open
