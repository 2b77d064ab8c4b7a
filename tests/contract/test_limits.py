"""What every implementation of the Cluster port says of its brokers' limits."""

from __future__ import annotations

import pytest

from srm.domain.names.topics import TopicPartition


def test_brokers_have_the_limits_of_clients(site) -> None:
    found = site.cluster.broker_configs()

    for key in ("group.max.session.timeout.ms", "transaction.max.timeout.ms", "message.max.bytes"):
        assert int(found[key]) > 0


def test_all_group_protocols_are_admitted_by_default(site) -> None:
    assert {"classic", "consumer"} <= site.cluster.group_kinds()


@pytest.mark.parametrize("kind", ["classic", "consumer"])
def test_a_member_reads_with_the_protocol_of_its_group(site, topic, unique, kind: str) -> None:
    place = TopicPartition(topic, 0)
    site.produce(topic, 0, 3)
    site.commit(unique, {place: 1})

    found = site.cluster.read_as_member(unique, [place], 60.0, kind)

    assert found[place].offset == 1
