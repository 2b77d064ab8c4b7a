"""Which topics hold state, and are never copied."""

from __future__ import annotations

import pytest

from srm.domain.names import internal_topics


@pytest.mark.parametrize("separator", [".", "_"])
@pytest.mark.parametrize("kind", ["configs", "offsets", "status"])
def test_topics_of_connect_workers_are_internal_with_any_separator(
    kind: str, separator: str
) -> None:
    assert internal_topics.is_internal(f"mm2-{kind}.P.internal", separator)
    assert internal_topics.is_internal(f"connect-{kind}", separator)


@pytest.mark.parametrize("separator", [".", "-", "_"])
def test_no_topic_of_ours_is_a_heartbeats_topic_for_mirrormaker(separator: str) -> None:
    assert not internal_topics.SERVICES.endswith(f"{separator}{internal_topics.HEARTBEATS}")


@pytest.mark.parametrize("name", ["orders.internal", "orders-internal", "P.orders.internal"])
def test_a_topic_of_users_is_copied_whatever_it_ends_with(name: str) -> None:
    assert not internal_topics.is_internal(name)


def test_the_coordinator_of_a_transactional_id_leads_the_partition_of_its_hash_in_java() -> None:
    assert internal_topics.partition_of("\U0001f600", 50) == 49, "hashCode() 1772899"
    assert internal_topics.partition_of("hello", 50) == 22, "hashCode() 99162322"
    assert internal_topics.partition_of("srm-control-records", 50) == 7, "hashCode() -588063757"
