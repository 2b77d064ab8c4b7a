"""The copy path without brokers: fetches, sends, acknowledgements, answers that come too late."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence

import pytest
from tests.flows import P_TO_B

from srm.domain.replication_records import AssignedPartition
from srm.domain.topics import TopicPartition
from srm.errors import UnavailableError
from srm.replication import codes, fetching
from srm.replication.claim import Claim, claim_lifetime_s, transactional_id
from srm.replication.fetching import SourceLoop
from srm.replication.partition import PartitionCopy, Phase
from srm.replication.ports import Fetched, FetchedPartition, FetchFrom, Produced, ProducerId
from srm.replication.rebuild import Record, encode
from srm.replication.resume import Resumed, Start
from srm.replication.sending import TargetLink

FOREVER = float("inf")


def batch(base_offset: int, count: int = 1) -> bytes:
    """Return a batch too large to be merged with its neighbours."""
    records = [Record(i, 1000, b"k", b"v" * 9000, ()) for i in range(count)]
    view = bytearray(encode(records, 0))
    struct.pack_into(">q", view, 0, base_offset)
    return bytes(view)


def fetched(copy: PartitionCopy, *batches: bytes, end: int = 100) -> FetchedPartition:
    records = memoryview(bytearray(b"".join(batches)))
    number = copy.source.partition
    return FetchedPartition(copy.source_id, number, 0, end, end, 0, (), records)


def copying(number: int = 0, expires: float = FOREVER) -> PartitionCopy:
    assigned = AssignedPartition("T", number, "A" * 21 + "g", "P.T", "B" * 21 + "g")
    copy = PartitionCopy(assigned, Start(0, 0))
    copy.begin_claiming()
    copy.begin_copying(Claim(ProducerId(7, 1), expires), Resumed(0, 1, (), ()))
    return copy


class Target:
    """A target broker that answers when the test says so."""

    def __init__(self) -> None:
        self.requests: list[list[TopicPartition]] = []
        self.answers: list[asyncio.Future[dict[TopicPartition, Produced]]] = []

    def produce(
        self, node: int, batches: Sequence[tuple[TopicPartition, memoryview]]
    ) -> asyncio.Future[dict[TopicPartition, Produced]]:
        del node
        self.requests.append([partition for partition, _ in batches])
        self.answers.append(asyncio.get_running_loop().create_future())
        return self.answers[-1]


class Link:
    """A target link with everything it reports."""

    def __init__(self) -> None:
        self.target = Target()
        self.claims: list[PartitionCopy] = []
        self.refused: list[Produced] = []
        self.link = TargetLink(
            self.target,  # type: ignore[arg-type]
            1,
            lambda: 2000,
            lambda copy: None,
            self.claims.append,
            lambda copy, produced: self.refused.append(produced),
        )


async def turns() -> None:
    """Give callbacks of answered futures their turn."""
    for _ in range(3):
        await asyncio.sleep(0)


def test_requests_are_pipelined_with_one_batch_of_each_partition() -> None:
    async def scenario() -> None:
        link, copies = Link(), [copying(0), copying(1)]
        for copy in copies:
            part = fetched(copy, *(batch(n) for n in range(8)))
            copy.accept(part, None, 0, read_committed=True)
            link.link.data_waits(copy)

        assert len(link.target.requests) == 5
        assert all(len(set(request)) == len(request) for request in link.target.requests)
        answer = {copies[0].target: Produced(0, 1)}
        link.target.answers[0].set_result(answer)
        await turns()
        assert (copies[0].source_next, copies[0].target_next) == (1, 2)
        assert len(link.target.requests) == 6

    asyncio.run(scenario())


def test_an_unexpected_offset_is_no_acknowledgement() -> None:
    async def scenario() -> None:
        link, copy = Link(), copying()
        copy.accept(fetched(copy, batch(0)), None, 0, read_committed=True)
        link.link.data_waits(copy)

        link.target.answers[0].set_result({copy.target: Produced(0, 99)})
        await turns()

        assert [produced.error for produced in link.refused] == [codes.UNEXPECTED_OFFSET]
        assert copy.source_next == 0

    asyncio.run(scenario())


def test_an_answer_to_a_claim_that_was_given_up_says_nothing() -> None:
    async def scenario() -> None:
        link, copy = Link(), copying()
        copy.accept(fetched(copy, batch(0)), None, 0, read_committed=True)
        link.link.data_waits(copy)
        copy.begin_claiming()

        link.target.answers[0].set_exception(UnavailableError("gone"))
        await turns()

        assert link.refused == []
        assert copy.phase is Phase.CLAIMING

    asyncio.run(scenario())


def test_a_lapsed_claim_is_taken_anew_before_anything_is_sent() -> None:
    async def scenario() -> None:
        link, copy = Link(), copying(expires=0.0)
        copy.accept(fetched(copy, batch(0)), None, 0, read_committed=True)

        link.link.data_waits(copy)

        assert link.claims == [copy]
        assert link.target.requests == []

    asyncio.run(scenario())


def test_a_fetch_from_a_position_that_was_replaced_is_ignored() -> None:
    copy = copying()

    copy.accept(fetched(copy, batch(5)), None, 5, read_committed=True)

    assert not copy.can_send
    assert copy.fetch_offset == 0


def test_a_group_of_dropped_batches_moves_the_position_without_a_claim() -> None:
    assigned = AssignedPartition("T", 0, "A" * 21 + "g", "P.T", "B" * 21 + "g")
    copy = PartitionCopy(assigned, Start(0, 0))
    emptied = bytearray(batch(0, 3))
    struct.pack_into(">i", emptied, 57, 0)

    copy.accept(fetched(copy, bytes(emptied), end=3), None, 0, read_committed=True)

    assert (copy.source_next, copy.source_end, copy.needs_claim) == (3, 3, False)


class Source:
    """A source broker that answers the first fetches as told and then blocks."""

    def __init__(self, *answers: Fetched | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[list[int]] = []

    async def fetch(self, node: int, partitions: Sequence[FetchFrom], **options: object) -> Fetched:
        del node, options
        self.asked.append([wanted.partition for wanted in partitions])
        if not self.answers:
            await asyncio.Event().wait()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def _run(loop: SourceLoop) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(loop.run(), 0.05)


def test_partitions_take_turns_at_being_first() -> None:
    async def scenario() -> None:
        copies = [copying(number) for number in range(3)]
        source = Source(Fetched(0, [], None), Fetched(0, [], None))
        loop = SourceLoop(source, 1, lambda c: None, lambda *a: None, read_committed=True)  # type: ignore[arg-type]
        for copy in copies:
            loop.add(copy)

        await _run(loop)

        assert [asked[0] for asked in source.asked] == [1, 2, 0]

    asyncio.run(scenario())


def test_fetches_pause_while_too_much_waits_for_the_target(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        copy, other = copying(0), copying(1)
        source = Source(Fetched(0, [fetched(copy, batch(0), batch(1))], None))
        loop = SourceLoop(source, 1, lambda c: None, lambda *a: None, read_committed=True)  # type: ignore[arg-type]
        loop.add(copy)
        loop.add(other)

        await _run(loop)

        assert len(source.asked) == 1

    monkeypatch.setattr(fetching, "_WAITING_BYTES", 10)
    asyncio.run(scenario())


def test_trouble_of_one_partition_is_told_and_the_others_go_on() -> None:
    async def scenario() -> None:
        bad, good = copying(0), copying(1)
        refused = FetchedPartition(bad.source_id, 0, 100, -1, -1, -1, (), memoryview(b""))
        source = Source(Fetched(0, [refused, fetched(good, batch(0))], None))
        told: list[tuple[PartitionCopy, int]] = []
        arrived: list[PartitionCopy] = []
        loop = SourceLoop(
            source,  # type: ignore[arg-type]
            1,
            arrived.append,
            lambda copy, error, text: told.append((copy, error)),
            read_committed=True,
        )
        loop.add(bad)
        loop.add(good)

        await _run(loop)

        assert told == [(bad, 100)]
        assert arrived == [good]

    asyncio.run(scenario())


def test_a_claim_lives_for_a_quarter_of_the_shorter_expiration() -> None:
    assert claim_lifetime_s({}) == 6 * 3600
    assert claim_lifetime_s({"transactional.id.expiration.ms": "8000"}) == 2


def test_every_owner_of_a_target_partition_uses_the_same_transactional_id() -> None:
    assert transactional_id(P_TO_B, TopicPartition("P.T", 3)) == "srm-P->B-P.T-3"
