"""What every implementation of the Wire port promises of leaders, batches, claims and offsets."""

from __future__ import annotations

import asyncio
import uuid

import pytest
from tests.contract.wire_places import NOW_MS, Place, batch, until
from tests.contract.wire_sites import WireSite
from tests.wires import produced

from srm.domain.names.topics import TopicPartition
from srm.errors import FencedError, UnavailableError
from srm.replication import codes
from srm.replication.batches.batch import batches
from srm.replication.ports import EpochEnd, Wire

OUT_OF_ORDER_SEQUENCE = 45
UNKNOWN_TOPIC_OR_PARTITION = 3


# ----- leaders


def test_a_partition_that_does_not_exist_has_no_leader_and_is_not_created(
    wire_site: WireSite,
) -> None:
    nowhere = TopicPartition(f"t-{uuid.uuid4().hex[:12]}", 0)

    async def scenario(wire: Wire) -> None:
        for _ in range(2):
            with pytest.raises(UnavailableError, match="no leader"):
                await wire.leader(nowhere)
            wire.leaders_changed()

    wire_site.run(scenario)


def test_a_topic_that_is_created_later_is_found(wire_site: WireSite) -> None:
    async def scenario(wire: Wire) -> None:
        first = Place(*wire_site.create_topic())
        node = (await wire.leader(first.at)).node
        later = Place(*wire_site.create_topic(2), 1)

        async def leader() -> int | None:
            try:
                return (await wire.leader(later.at)).node
            except UnavailableError:
                return None

        assert await until(leader) == node

    wire_site.run(scenario)


# ----- produce


def test_batches_of_one_partition_are_appended_in_the_order_of_the_calls(
    wire_site: WireSite, place: Place
) -> None:
    async def scenario(wire: Wire) -> None:
        answers = await place.produce(wire, 1, 3, 2, *[1] * 20)

        assert [answer.error for answer in answers] == [codes.NONE] * 23
        assert [answer.base_offset for answer in answers] == [0, 1, 4, *range(6, 26)]
        assert await wire.log_range(place.at) == (0, 26)

    wire_site.run(scenario)


def test_one_request_carries_a_batch_for_each_of_several_partitions(wire_site: WireSite) -> None:
    topic, topic_id = wire_site.create_topic(3)
    here = [Place(topic, topic_id, number) for number in range(3)]

    async def scenario(wire: Wire) -> None:
        node = (await wire.leader(here[0].at)).node
        await wire.connect(node)
        [sent] = produced(wire, node, [(p.at, batch(p.at.partition + 1)) for p in here])
        answer = await sent

        assert {at: (p.error, p.base_offset) for at, p in answer.partitions.items()} == {
            p.at: (codes.NONE, 0) for p in here
        }
        assert [await wire.log_range(p.at) for p in here] == [(0, 1), (0, 2), (0, 3)]

    wire_site.run(scenario)


def test_a_batch_for_a_partition_that_does_not_exist_is_refused_alone(
    wire_site: WireSite, place: Place
) -> None:
    nowhere = TopicPartition(place.at.topic, 7)

    async def scenario(wire: Wire) -> None:
        node = (await wire.leader(place.at)).node
        await wire.connect(node)
        [sent] = produced(wire, node, [(place.at, batch(1)), (nowhere, batch(1))])
        answer = await sent

        assert answer.partitions[place.at].error == codes.NONE
        assert answer.partitions[nowhere].error == UNKNOWN_TOPIC_OR_PARTITION

    wire_site.run(scenario)


def test_without_a_connection_a_batch_fails_at_once(wire_site: WireSite, place: Place) -> None:
    async def scenario(wire: Wire) -> None:
        node = (await wire.leader(place.at)).node
        with pytest.raises(UnavailableError):
            await produced(wire, node, [(place.at, batch(1))])[0]
        assert await wire.log_range(place.at) == (0, 0)

    wire_site.run(scenario)


def test_a_batch_that_comes_again_is_answered_with_its_first_place(
    wire_site: WireSite, place: Place, transactional_id: str
) -> None:
    async def scenario(wire: Wire) -> None:
        producer, _ = await place.claim(wire, transactional_id)
        first = await place.produce(wire, 2, 1, producer=producer)
        again = await place.produce(wire, 2, 1, producer=producer)

        assert [answer.base_offset for answer in again] == [a.base_offset for a in first] == [1, 3]
        assert await wire.log_range(place.at) == (0, 4)

    wire_site.run(scenario)


def test_a_gap_in_the_sequence_is_refused(
    wire_site: WireSite, place: Place, transactional_id: str
) -> None:
    async def scenario(wire: Wire) -> None:
        producer, _ = await place.claim(wire, transactional_id)
        await place.produce(wire, 1, producer=producer)
        [answer] = await place.produce(wire, 1, producer=producer, sequence=2)

        assert answer.error == OUT_OF_ORDER_SEQUENCE
        assert await wire.log_range(place.at) == (0, 2)

    wire_site.run(scenario)


def test_after_a_marker_the_first_sequence_is_zero(
    wire_site: WireSite, place: Place, transactional_id: str
) -> None:
    async def scenario(wire: Wire) -> None:
        producer, _ = await place.claim(wire, transactional_id)
        await place.produce(wire, 3, producer=producer)
        producer, _ = await place.claim(wire, transactional_id)
        [refused] = await place.produce(wire, 1, producer=producer, sequence=3)
        [taken] = await place.produce(wire, 1, producer=producer)

        assert refused.error == OUT_OF_ORDER_SEQUENCE
        assert (taken.error, taken.base_offset) == (codes.NONE, 5)

    wire_site.run(scenario)


# ----- claims


def test_each_takeover_of_a_transactional_id_raises_the_epoch(
    wire_site: WireSite, transactional_id: str
) -> None:
    async def scenario(wire: Wire) -> None:
        taken = [await wire.init_producer_id(transactional_id) for _ in range(3)]

        assert len({producer.id for producer in taken}) == 1
        epochs = [producer.epoch for producer in taken]
        assert epochs == sorted(set(epochs))
        other = await wire.init_producer_id(f"{transactional_id}-other")
        assert other.id != taken[0].id

    wire_site.run(scenario)


def test_an_empty_transaction_leaves_a_marker_of_its_producer_at_the_end_of_the_log(
    wire_site: WireSite, place: Place, transactional_id: str
) -> None:
    async def scenario(wire: Wire) -> None:
        await place.produce(wire, 2)
        producer, marker = await place.claim(wire, transactional_id)

        assert marker.base_offset == 2
        assert (marker.producer_id, marker.producer_epoch) == (producer.id, producer.epoch)
        assert await wire.log_range(place.at) == (0, 3)

    wire_site.run(scenario)


def test_once_the_marker_is_in_the_log_older_epochs_are_shut_out(
    wire_site: WireSite, place: Place, transactional_id: str
) -> None:
    async def scenario(wire: Wire) -> None:
        older, _ = await place.claim(wire, transactional_id)
        await place.produce(wire, 1, producer=older)
        newer, marker = await place.claim(wire, transactional_id)
        [refused] = await place.produce(wire, 1, producer=older, sequence=1)
        [taken] = await place.produce(wire, 1, producer=newer)

        assert refused.error in codes.FENCED
        assert (taken.error, taken.base_offset) == (codes.NONE, marker.base_offset + 1)

    wire_site.run(scenario)


def test_between_takeover_and_marker_the_older_owner_still_writes(
    wire_site: WireSite, place: Place, transactional_id: str
) -> None:
    """So a claim is in force only once its marker has been read back."""

    async def scenario(wire: Wire) -> None:
        older, _ = await place.claim(wire, transactional_id)
        await wire.init_producer_id(transactional_id)
        [taken] = await place.produce(wire, 1, producer=older)

        assert (taken.error, taken.base_offset) == (codes.NONE, 1)

    wire_site.run(scenario)


def test_an_owner_that_was_overtaken_writes_no_marker(
    wire_site: WireSite, place: Place, transactional_id: str
) -> None:
    async def scenario(wire: Wire) -> None:
        older = await wire.init_producer_id(transactional_id)
        await wire.init_producer_id(transactional_id)
        with pytest.raises(FencedError):
            await wire.abort_empty_transaction(transactional_id, older, place.at)

        assert await wire.log_range(place.at) == (0, 0)

    wire_site.run(scenario)


# ----- offsets and epochs


def test_a_log_ranges_from_what_was_trimmed_to_its_high_watermark(
    wire_site: WireSite, place: Place
) -> None:
    async def scenario(wire: Wire) -> None:
        assert await wire.log_range(place.at) == (0, 0)
        await place.produce(wire, 5, 5)
        assert await wire.log_range(place.at) == (0, 10)
        wire_site.trim(place.at.topic, 0, 7)
        assert await wire.log_range(place.at) == (7, 10)
        assert await wire.local_start(place.at) == 7

    wire_site.run(scenario)


def test_the_leader_names_its_epoch_with_the_end_of_its_log(
    wire_site: WireSite, place: Place
) -> None:
    async def scenario(wire: Wire) -> None:
        await place.produce(wire, 3)

        assert await wire.log_end(place.at) == EpochEnd((await wire.leader(place.at)).epoch, 3)

    wire_site.run(scenario)


def test_a_topic_has_the_id_under_which_it_is_fetched(wire_site: WireSite, place: Place) -> None:
    async def scenario(wire: Wire) -> None:
        assert await wire.topic_id(place.at.topic) == place.topic_id
        assert await wire.topic_id(f"t-{uuid.uuid4().hex[:12]}") is None

    wire_site.run(scenario)


def test_an_offset_is_found_by_time_and_the_end_where_all_is_older(
    wire_site: WireSite, place: Place
) -> None:
    async def scenario(wire: Wire) -> None:
        await place.produce(wire, 3, 1, 5)  # each batch begins at the same time

        times = (0, NOW_MS, NOW_MS + 1, NOW_MS + 4, NOW_MS + 5)
        assert [await wire.offset_at(place.at, time) for time in times] == [0, 0, 1, 8, 9]

    wire_site.run(scenario)


def test_many_ranges_may_be_asked_for_at_once(wire_site: WireSite) -> None:
    topic, topic_id = wire_site.create_topic(8)
    here = [Place(topic, topic_id, number) for number in range(8)]

    async def scenario(wire: Wire) -> None:
        for p in here:
            await p.produce(wire, p.at.partition + 1)
        ranges = await asyncio.gather(*[wire.log_range(p.at) for p in here])
        assert ranges == [(0, number) for number in range(1, 9)]

    wire_site.run(scenario)


def test_the_newest_epoch_ends_with_the_log_and_one_that_never_was_is_not_known(
    wire_site: WireSite, place: Place
) -> None:
    async def scenario(wire: Wire) -> None:
        await place.produce(wire, 3)
        part = await place.fetch(wire, 0)
        [stored] = list(batches(part.records))

        epoch = stored.leader_epoch
        assert await wire.epoch_end(place.at, epoch) == EpochEnd(epoch, 3)
        assert await wire.epoch_end(place.at, epoch + 5) == EpochEnd(-1, -1)

    wire_site.run(scenario)
