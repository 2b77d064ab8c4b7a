"""What every implementation of the Wire port promises about fetches and their sessions."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence

from tests.contract.wire_places import Place, batch, offsets, places, until
from tests.contract.wire_sites import WireSite
from tests.waiting import DEADLINE_S

from srm.replication import codes
from srm.replication.batches.batch import batches
from srm.replication.ports import Fetched, FetchedPartition, FetchFrom, FetchSession, Wire

UNKNOWN_TOPIC_ID = 100
UNKNOWN_LEADER_EPOCH = 75


# ----- fetch


def test_a_batch_that_holds_the_wanted_offset_arrives_from_its_beginning(
    wire_site: WireSite, place: Place
) -> None:
    async def scenario(wire: Wire) -> None:
        await place.produce(wire, 2, 4, 3)
        part = await place.fetch(wire, 4)

        assert part.error == codes.NONE
        assert offsets(part) == [(2, 4), (6, 3)]
        assert (part.log_start, part.high_watermark, part.last_stable_offset) == (0, 9, 9)

    wire_site.run(scenario)


def test_what_was_fetched_stays_as_it_is_while_more_is_fetched(
    wire_site: WireSite, place: Place
) -> None:
    """A walk keeps the batches of one fetch while it, or another walk, makes the next."""

    async def scenario(wire: Wire) -> None:
        await place.produce(wire, 9000)
        kept = (await place.fetch(wire, 0)).records
        before = bytes(kept)
        await place.produce(wire, 8000, sequence=9000)
        again = (await place.fetch(wire, 9000)).records

        assert 1 << 16 < len(again) < len(kept)
        assert kept == before

    wire_site.run(scenario)


def test_at_the_end_of_the_log_there_is_nothing_and_behind_it_an_error(
    wire_site: WireSite, place: Place
) -> None:
    async def scenario(wire: Wire) -> None:
        await place.produce(wire, 2)
        at_end = await place.fetch(wire, 2)
        behind = await place.fetch(wire, 3)

        assert (at_end.error, offsets(at_end), at_end.high_watermark) == (codes.NONE, [], 2)
        assert behind.error == codes.OFFSET_OUT_OF_RANGE

    wire_site.run(scenario)


def test_before_the_start_of_the_log_there_is_an_error(wire_site: WireSite, place: Place) -> None:
    async def scenario(wire: Wire) -> None:
        await place.produce(wire, 2, 2)
        wire_site.trim(place.at.topic, 0, 3)
        before = await place.fetch(wire, 2)
        at_start = await place.fetch(wire, 3)

        assert before.error == codes.OFFSET_OUT_OF_RANGE
        assert offsets(at_start) == [(2, 2)]
        assert at_start.log_start == 3

    wire_site.run(scenario)


def test_a_log_without_the_epoch_that_was_read_is_an_error(
    wire_site: WireSite, place: Place
) -> None:
    """It was truncated, and has grown to the same offset again."""

    async def scenario(wire: Wire) -> None:
        await place.produce(wire, 2)
        first = await place.fetch(wire, 0)
        [epoch] = [b.leader_epoch for b in batches(first.records)]
        for offset in (0, 2):
            same = await place.fetch(wire, offset, epoch=epoch)
            other = await place.fetch(wire, offset, epoch=epoch + 7)

            assert (same.error, other.error) == (codes.NONE, codes.OFFSET_OUT_OF_RANGE)

    wire_site.run(scenario)


def test_a_topic_id_that_nobody_has_is_an_error(wire_site: WireSite, place: Place) -> None:
    async def scenario(wire: Wire) -> None:
        node = (await wire.leader(place.at)).node
        stranger = FetchFrom(uuid.uuid4().bytes, 0, 0, 1 << 20)
        fetched = await wire.fetch(
            node,
            [stranger, place.wanted(0)],
            max_wait_ms=10,
            max_bytes=1 << 20,
            read_committed=False,
        )

        errors = {part.topic_id: part.error for part in fetched.partitions}
        assert errors == {stranger.topic_id: UNKNOWN_TOPIC_ID, place.topic_id: codes.NONE}

    wire_site.run(scenario)


def test_a_fetch_that_names_an_epoch_its_leader_has_not_heard_of_is_refused(
    wire_site: WireSite, place: Place
) -> None:
    """The leader lags behind the controller: its log may lack what was written since (KIP-320)."""

    async def scenario(wire: Wire) -> None:
        await place.produce(wire, 3)
        node, epoch = await wire.leader(place.at)
        for named, error in ((epoch, codes.NONE), (epoch + 1, UNKNOWN_LEADER_EPOCH)):
            part = await place.fetch(wire, 0, leader_epoch=named)
            assert (part.error, bool(part.records)) == (error, not error)
        session = wire.fetch_session(node, read_committed=False)
        session.want(place.wanted(0, leader_epoch=epoch + 1))
        [part] = (await poll(session)).partitions
        assert part.error == UNKNOWN_LEADER_EPOCH
        session.want(place.wanted(0, leader_epoch=epoch))
        assert await news(session) == {0: [(0, 3)]}

    wire_site.run(scenario)


def test_records_keep_every_byte_behind_the_header(wire_site: WireSite, place: Place) -> None:
    async def scenario(wire: Wire) -> None:
        await place.produce(wire, 50)
        part = await place.fetch(wire, 0)

        assert bytes(part.records[61:]) == bytes(batch(50)[61:])

    wire_site.run(scenario)


def test_a_size_limit_never_keeps_back_the_first_batch(wire_site: WireSite, place: Place) -> None:
    async def scenario(wire: Wire) -> None:
        await place.produce(wire, 30, 30)
        fetched = await wire.fetch(
            (await wire.leader(place.at)).node,
            [place.wanted(0, max_bytes=1)],
            max_wait_ms=10,
            max_bytes=1,
            read_committed=False,
        )
        assert places(fetched) == {0: [(0, 30)]}

    wire_site.run(scenario)


def test_an_open_transaction_holds_back_what_is_behind_it_from_committed_readers(
    wire_site: WireSite, place: Place, transactional_id: str
) -> None:
    async def scenario(wire: Wire) -> None:
        await place.produce(wire, 1)
        wire_site.produce_in(transactional_id, place.at.topic, 0, 2)
        await place.produce(wire, 1)
        committed = await place.fetch(wire, 0, read_committed=True)
        everything = await place.fetch(wire, 0)

        assert offsets(committed) == [(0, 1)]
        assert (committed.last_stable_offset, committed.high_watermark) == (1, 4)
        assert offsets(everything) == [(0, 1), (1, 1), (2, 1), (3, 1)]
        wire_site.end_transaction(transactional_id, commit=True)

        async def all_of_it() -> list[tuple[int, int]] | None:
            part = await place.fetch(wire, 0, read_committed=True)
            return offsets(part) if len(offsets(part)) == 5 else None

        assert (await until(all_of_it))[-1] == (4, 1)  # the marker

    wire_site.run(scenario)


def test_aborted_transactions_are_named_to_committed_readers(
    wire_site: WireSite, place: Place, transactional_id: str
) -> None:
    async def scenario(wire: Wire) -> None:
        await place.produce(wire, 1)
        wire_site.produce_in(transactional_id, place.at.topic, 0, 2)
        wire_site.end_transaction(transactional_id, commit=False)

        async def named() -> FetchedPartition | None:
            part = await place.fetch(wire, 0, read_committed=True)
            return part if part.last_stable_offset == 4 else None

        part = await until(named)
        _, first, _, marker = list(batches(part.records))
        assert part.aborted == ((first.producer_id, 1),)
        assert marker.is_control
        assert not first.is_control

    wire_site.run(scenario)


# ----- fetch sessions


def three(wire_site: WireSite) -> Sequence[Place]:
    topic, topic_id = wire_site.create_topic(3)
    return [Place(topic, topic_id, number) for number in range(3)]


async def poll(session: FetchSession, max_wait_ms: int = 10) -> Fetched:
    return await session.poll(max_wait_ms=max_wait_ms, max_bytes=1 << 20)


async def news(session: FetchSession) -> dict[int, list[tuple[int, int]]]:
    """Poll until there are records; a first answer may come without."""

    async def look() -> dict[int, list[tuple[int, int]]] | None:
        fetched = await poll(session, 200)
        return {n: found for n, found in places(fetched).items() if found} or None

    return await until(look)


def test_a_session_brings_what_is_wanted_from_where_it_is_wanted(wire_site: WireSite) -> None:
    here = three(wire_site)

    async def scenario(wire: Wire) -> None:
        for p in here:
            await p.produce(wire, 2, 2)
        session = wire.fetch_session((await wire.leader(here[0].at)).node, read_committed=False)
        session.want(here[0].wanted(0))
        session.want(here[1].wanted(2))

        assert await news(session) == {0: [(0, 2), (2, 2)], 1: [(2, 2)]}

    wire_site.run(scenario)


def test_a_session_repeats_what_was_not_taken_and_leaves_out_what_has_no_news(
    wire_site: WireSite,
) -> None:
    here = three(wire_site)

    async def scenario(wire: Wire) -> None:
        for p in here:
            await p.produce(wire, 1)
        session = wire.fetch_session((await wire.leader(here[0].at)).node, read_committed=False)
        for p in here:
            session.want(p.wanted(0))
        assert sorted(await news(session)) == [0, 1, 2]
        session.want(here[0].wanted(1))
        session.want(here[2].wanted(1))

        again = await poll(session)
        assert places(again) == {1: [(0, 1)]}
        session.want(here[1].wanted(1))
        assert not any(places(await poll(session)).values())
        await here[2].produce(wire, 1)
        assert await news(session) == {2: [(1, 1)]}

    wire_site.run(scenario)


def test_a_session_forgets_what_it_is_told_to_and_remembers_it_when_wanted_again(
    wire_site: WireSite,
) -> None:
    here = three(wire_site)

    async def scenario(wire: Wire) -> None:
        session = wire.fetch_session((await wire.leader(here[0].at)).node, read_committed=False)
        for p in here:
            session.want(p.wanted(0))
        await poll(session)
        session.forget(here[1].topic_id, 1)
        for p in here:
            await p.produce(wire, 1)
        assert await news(session) in ({0: [(0, 1)], 2: [(0, 1)]}, {0: [(0, 1)]}, {2: [(0, 1)]})
        session.forget(here[0].topic_id, 0)
        session.forget(here[2].topic_id, 2)
        session.want(here[1].wanted(0))

        assert await news(session) == {1: [(0, 1)]}

    wire_site.run(scenario)


def test_a_waiting_poll_comes_back_when_records_arrive(wire_site: WireSite, place: Place) -> None:
    """A long poll that waited to its end would come back after minutes."""

    async def scenario(wire: Wire) -> None:
        session = wire.fetch_session((await wire.leader(place.at)).node, read_committed=False)
        session.want(place.wanted(0))
        await poll(session)
        waiting = asyncio.ensure_future(poll(session, 10 * 60_000))
        await asyncio.sleep(0)  # its request leaves
        await place.produce(wire, 1)
        async with asyncio.timeout(DEADLINE_S):
            assert places(await waiting) == {0: [(0, 1)]}

    wire_site.run(scenario)


def test_a_session_tells_of_an_offset_that_is_out_of_range_and_goes_on_with_the_others(
    wire_site: WireSite,
) -> None:
    here = three(wire_site)

    async def scenario(wire: Wire) -> None:
        for p in here:
            await p.produce(wire, 3)
        wire_site.trim(here[1].at.topic, 1, 2)
        session = wire.fetch_session((await wire.leader(here[0].at)).node, read_committed=False)
        session.want(here[0].wanted(0))
        session.want(here[1].wanted(1))
        session.want(here[2].wanted(4))
        fetched = await poll(session, 200)
        errors = {part.partition: part.error for part in fetched.partitions}
        out_of_range = codes.OFFSET_OUT_OF_RANGE
        assert errors == {0: codes.NONE, 1: out_of_range, 2: out_of_range}
        session.want(here[0].wanted(3))
        session.want(here[1].wanted(2))
        session.forget(here[2].topic_id, 2)

        assert await news(session) == {1: [(0, 3)]}

    wire_site.run(scenario)


def test_sessions_know_nothing_of_each_other(wire_site: WireSite, place: Place) -> None:
    async def scenario(wire: Wire) -> None:
        await place.produce(wire, 1, 1)
        node = (await wire.leader(place.at)).node
        first, second = (wire.fetch_session(node, read_committed=False) for _ in range(2))
        first.want(place.wanted(0))
        second.want(place.wanted(1))

        assert await news(first) == {0: [(0, 1), (1, 1)]}
        assert await news(second) == {0: [(1, 1)]}

    wire_site.run(scenario)
