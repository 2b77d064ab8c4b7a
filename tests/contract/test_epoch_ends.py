"""How far a log holds a leader epoch."""

from __future__ import annotations

from srm.domain.names.topics import TopicPartition


def test_an_epoch_reaches_to_the_end_of_the_log_and_one_that_nobody_wrote_under_nowhere(
    site, topic
):
    site.produce(topic, 0, 5)
    place = TopicPartition(topic, 0)

    assert site.cluster.epoch_ends({place: 0}) == {place: 5}
    assert site.cluster.epoch_ends({place: 1000}) == {place: -1}


def test_unknown_partitions_are_left_out(site, topic):
    site.produce(topic, 0, 1)
    known, unknown = TopicPartition(topic, 0), TopicPartition(f"{topic}-no", 0)

    assert site.cluster.epoch_ends({known: 0, unknown: 0}) == {known: 1}
    assert site.cluster.epoch_ends({}) == {}
