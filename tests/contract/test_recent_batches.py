"""What the newest batches of a partition look like."""

from __future__ import annotations

from tests.waiting import eventually

from srm.domain.topics import TopicPartition


def test_batches_are_counted_with_their_records_and_bytes(site, topic):
    site.produce(topic, 0, 5)
    place = TopicPartition(topic, 0)

    found = site.cluster.recent_batches([place])

    assert found.keys() == {place}
    sample = found[place]
    assert sample.records == 5
    assert 1 <= sample.batches <= 5
    assert sample.bytes > 61 * sample.batches
    assert sample.codecs == {"none": sample.bytes}


def test_partitions_that_are_empty_or_unknown_are_left_out(site, topic):
    site.produce(topic, 0, 1)
    places = [TopicPartition(topic, 0), TopicPartition(topic, 1), TopicPartition(f"{topic}-no", 0)]

    assert site.cluster.recent_batches(places).keys() == {places[0]}
    assert site.cluster.recent_batches([]) == {}


def test_a_log_that_retention_has_emptied_has_no_batches(site, topic):
    site.produce(topic, 0, 3)
    site.trim(topic, 0, 3)

    assert site.cluster.recent_batches([TopicPartition(topic, 0)]) == {}


def test_markers_are_no_batches(site, topic, unique):
    site.produce(topic, 0, 2)
    site.produce_in(unique, topic, 0, 1)
    site.end_transaction(unique, commit=True)
    place = TopicPartition(topic, 0)
    eventually(lambda: site.cluster.log_ends([place])[place] == 4, "the transaction ended")

    assert site.cluster.recent_batches([place])[place].records == 3
