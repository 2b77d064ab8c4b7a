"""The copy path without brokers: fetches, sends, acknowledgements, answers that come too late."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence

import pytest
from tests.batches import Record, encode
from tests.unit.replication.resume.two_logs import in_epoch
from tests.wires import telling

from srm.domain.flow_state.replication_records import AssignedPartition
from srm.domain.names.topics import TopicPartition
from srm.domain.offset_map.runs import MOST_EPOCHS, Lineage
from srm.errors import UnavailableError
from srm.replication import codes
from srm.replication.batches.batch import seal
from srm.replication.claim import Claim, claim_lifetime_s, transactional_id
from srm.replication.copy import fetching, sending
from srm.replication.copy.fetching import Quota, SourceLoop
from srm.replication.copy.sending import TargetLink
from srm.replication.mapping.starts import Start
from srm.replication.partition import PartitionCopy, Phase
from srm.replication.ports import (
    Fetched,
    FetchedPartition,
    FetchFrom,
    ProduceAnswer,
    Produced,
    ProduceRequest,
    ProducerId,
)
from srm.replication.resume.resume import Resumed
from srm_lab.testing.flows import P_TO_B
from srm_lab.testing.simulation.loop import simulated_loop

FOREVER = float("inf")


def batch(base_offset: int, count: int = 1) -> bytes:
    """Return a batch too large to be merged with its neighbours."""
    records = [Record(i, 1000, b"k", b"v" * 9000) for i in range(count)]
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
    copy.begin_copying(Claim(ProducerId(7, 1), expires), Resumed(0, 1))
    return copy


class Target:
    """A target broker that answers when the test says so."""

    def __init__(self) -> None:
        self.requests: list[list[TopicPartition]] = []
        self.answers: list[asyncio.Future[ProduceAnswer]] = []
        self.asked = asyncio.Event()

    def produce(self, node: int, requests: Sequence[ProduceRequest]) -> None:
        del node
        self.asked.set()
        for batches, answered in requests:
            self.requests.append([partition for partition, _ in batches])
            self.answers.append(telling(answered))


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


def answer(*answers: tuple[PartitionCopy, Produced], throttle_time_ms: int = 0) -> ProduceAnswer:
    return ProduceAnswer({copy.target: produced for copy, produced in answers}, throttle_time_ms)


def test_a_position_keeps_the_epochs_before_it_however_many_are_read_after_it() -> None:
    """One fetch of an old, quiet partition can hold batches of many leaders."""
    copy = copying()
    many = 3 * MOST_EPOCHS
    copy.accept(
        fetched(copy, *(in_epoch(n, batch(n)) for n in range(many))), None, 0, read_committed=True
    )
    assert copy.on_ack(copy.send_next(), 1, 0)
    assert (copy.source_next, copy.source_lineage) == (1, Lineage(((0, 0),)))

    for n in range(1, many):
        assert copy.on_ack(copy.send_next(), 1 + n, 0)
    assert copy.source_lineage == Lineage(tuple((n, n) for n in range(many - MOST_EPOCHS, many)))


def test_requests_are_pipelined_with_one_batch_of_each_partition() -> None:
    async def scenario() -> None:
        link, copies = Link(), [copying(0), copying(1)]
        for copy in copies:
            part = fetched(copy, *(batch(n) for n in range(8)))
            copy.accept(part, None, 0, read_committed=True)
            link.link.data_waits(copy)
        await turns()

        assert [len(set(request)) for request in link.target.requests] == [2] * 8
        link.target.answers[0].set_result(answer((copies[0], Produced(0, 1))))
        await turns()
        assert (copies[0].source_next, copies[0].target_next) == (1, 2)

    asyncio.run(scenario())


@pytest.mark.parametrize(("limit", "value"), [("_MAX_IN_FLIGHT", 3), ("_IN_FLIGHT_BYTES", 25_000)])
def test_the_pipeline_has_an_end_and_goes_on_when_something_is_answered(
    limit: str, value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        link, copy = Link(), copying()
        copy.accept(fetched(copy, *(batch(n) for n in range(8))), None, 0, read_committed=True)
        link.link.data_waits(copy)
        await turns()
        assert len(link.target.requests) == 3

        link.target.answers[0].set_result(answer((copy, Produced(0, 1))))
        await turns()
        assert len(link.target.requests) == 4

    monkeypatch.setattr(sending, limit, value)
    asyncio.run(scenario())


def test_nothing_is_sent_while_the_brokers_quota_asks_for_a_pause() -> None:
    async def scenario() -> None:
        link, copy = Link(), copying()
        copy.accept(fetched(copy, batch(0)), None, 0, read_committed=True)
        link.link.data_waits(copy)
        await turns()
        link.target.answers[0].set_result(
            answer((copy, Produced(0, 1)), throttle_time_ms=3_600_000)
        )
        copy.accept(fetched(copy, batch(1)), None, 1, read_committed=True)
        link.link.data_waits(copy)
        await turns()
        assert len(link.target.requests) == 1
        link.target.asked.clear()

        await link.target.asked.wait()
        assert len(link.target.requests) == 2

    with simulated_loop(1) as loop:
        loop.run_until_complete(scenario())


def test_under_a_small_quota_only_a_few_seconds_worth_is_under_way() -> None:
    """9 KB take 9 s: one batch is sent at a time. Answers without a pause double the room."""

    async def scenario() -> None:
        link, copies = Link(), [copying(number) for number in range(8)]
        copies[0].accept(fetched(copies[0], batch(0)), None, 0, read_committed=True)
        link.link.data_waits(copies[0])
        await turns()
        throttled = answer((copies[0], Produced(0, 1)), throttle_time_ms=9000)
        link.target.answers[0].set_result(throttled)
        for copy in copies:
            at = copy.fetch_offset
            copy.accept(fetched(copy, batch(at)), None, at, read_committed=True)
            link.link.data_waits(copy)
        link.target.asked.clear()
        await link.target.asked.wait()
        sent = [len(link.target.requests[1])]
        while sum(sent) < len(copies):
            number = len(link.target.answers)
            accepted = [c for c in copies if c.target in link.target.requests[-1]]
            link.target.answers[-1].set_result(
                answer(*[(c, Produced(0, c.target_next)) for c in accepted])
            )
            await turns()
            sent += [len(request) for request in link.target.requests[number:]]

        assert sent == [1, 1, 1, 2, 3]

    with simulated_loop(1) as loop:
        loop.run_until_complete(scenario())


def test_an_unexpected_offset_is_no_acknowledgement() -> None:
    async def scenario() -> None:
        link, copy = Link(), copying()
        copy.accept(fetched(copy, batch(0)), None, 0, read_committed=True)
        link.link.data_waits(copy)
        await turns()

        link.target.answers[0].set_result(answer((copy, Produced(0, 99))))
        await turns()

        assert [produced.error for produced in link.refused] == [codes.UNEXPECTED_OFFSET]
        assert copy.source_next == 0

    asyncio.run(scenario())


def two_with_a_batch() -> tuple[Link, list[PartitionCopy]]:
    link, copies = Link(), [copying(0), copying(1)]
    for copy in copies:
        copy.accept(fetched(copy, batch(0)), None, 0, read_committed=True)
        link.link.data_waits(copy)
    return link, copies


def test_a_batch_that_cannot_be_sent_does_not_keep_those_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        link, copies = two_with_a_batch()
        monkeypatch.setattr(copies[1], "send_next", None)
        monkeypatch.setattr(sending, "_REQUEST_BYTES", 1)
        await turns()

        assert link.target.requests == [[copies[0].target]]
        assert [produced.error for produced in link.refused] == [codes.NO_ANSWER]

    asyncio.run(scenario())


def test_what_befalls_one_partition_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        link, copies = two_with_a_batch()
        await turns()
        monkeypatch.setattr(copies[0], "traffic", None)

        good = Produced(0, 1)
        link.target.answers[0].set_result(answer((copies[0], good), (copies[1], good)))
        await turns()

        assert [produced.error for produced in link.refused] == [codes.NO_ANSWER]
        assert copies[1].source_next == 1

    asyncio.run(scenario())


def test_an_answer_to_a_claim_that_was_given_up_says_nothing() -> None:
    async def scenario() -> None:
        link, copy = Link(), copying()
        copy.accept(fetched(copy, batch(0)), None, 0, read_committed=True)
        link.link.data_waits(copy)
        await turns()
        copy.begin_claiming()

        link.target.answers[0].set_exception(UnavailableError("gone"))
        await turns()

        assert link.refused == []
        assert copy.phase is Phase.CLAIMING

    asyncio.run(scenario())


def test_a_lapsed_claim_is_taken_again_before_anything_is_sent() -> None:
    async def scenario() -> None:
        link, copy = Link(), copying(expires=0.0)
        copy.accept(fetched(copy, batch(0)), None, 0, read_committed=True)

        link.link.data_waits(copy)
        await turns()

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
    seal(memoryview(emptied))

    copy.accept(fetched(copy, bytes(emptied), end=3), None, 0, read_committed=True)

    assert (copy.source_next, copy.source_end, copy.needs_claim) == (3, 3, False)


class Session:
    """A fetch session whose first polls are answered as told; then it blocks."""

    def __init__(self, *answers: Fetched | Exception) -> None:
        self.answers = list(answers)
        self.wanted: dict[int, int] = {}
        self.told: list[tuple[int, int | None]] = []
        self.polls: list[dict[str, int]] = []

    def want(self, partition: FetchFrom) -> None:
        self.wanted[partition.partition] = partition.offset
        self.told.append((partition.partition, partition.offset))

    def forget(self, topic_id: bytes, partition: int) -> None:
        del topic_id, self.wanted[partition]
        self.told.append((partition, None))

    async def poll(self, **limits: int) -> Fetched:
        self.polls.append(limits)
        if not self.answers:
            await asyncio.Event().wait()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class Loop:
    """A source loop with everything it reports."""

    def __init__(self, session: Session, quota: Quota | None = None, linger_s: float = 0.0) -> None:
        self.arrived: list[PartitionCopy] = []
        self.trouble: list[tuple[PartitionCopy, int]] = []
        self.loop = SourceLoop(
            session,
            "node 1",
            self.arrived.append,
            lambda copy, error, text: self.trouble.append((copy, error)),
            quota or Quota(None),
            read_committed=True,
            linger_s=linger_s,
        )

    async def run(self, *copies: PartitionCopy) -> None:
        for copy in copies:
            self.loop.add(copy, 1)
        running = asyncio.ensure_future(self.loop.run())
        for _ in range(1000):  # what needs no time has happened by then
            await asyncio.sleep(0)
        assert not running.done()
        running.cancel()
        await asyncio.wait([running])


@pytest.mark.parametrize(("records", "polls"), [(1, 1), (50, 1), (60, 3)])
def test_more_is_waited_for_where_little_has_come(records: int, polls: int) -> None:
    async def scenario() -> None:
        copy = copying(0)
        part = fetched(copy, batch(0, records))
        session = Session(Fetched([part], None), Fetched([], None))

        await Loop(session, linger_s=3600).run(copy)

        assert len(session.polls) == polls

    asyncio.run(scenario())


def test_an_answer_counts_as_of_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """A suspended replicator read it a minute later; the forecast left that minute out."""
    clock = [100.0]
    monkeypatch.setattr(fetching, "now_s", lambda: clock[0])

    class Suspended(Session):
        async def poll(self, **limits: int) -> Fetched:
            found = await super().poll(**limits)
            clock[0] += 60
            return found

    async def scenario() -> None:
        copy = copying(0)
        loop = Loop(Suspended(Fetched([fetched(copy, batch(0))], None)))

        await loop.run(copy)

        assert (loop.arrived, loop.loop.known_s) == ([copy], 100.0)

    asyncio.run(scenario())


def test_a_fetch_that_fails_troubles_all_partitions_and_is_repeated_after_a_pause() -> None:
    async def scenario() -> None:
        one, other = copying(0), copying(1)
        session = Session(UnavailableError("error -1"), UnavailableError("error -1"))
        reported = Loop(session)

        await reported.run(one, other)

        assert reported.trouble == [(one, codes.NO_ANSWER), (other, codes.NO_ANSWER)]
        assert len(session.polls) == 1

    asyncio.run(scenario())


def test_only_partitions_that_have_moved_are_told_to_the_broker_again() -> None:
    async def scenario() -> None:
        moving, quiet = copying(0), copying(1)
        session = Session(Fetched([fetched(moving, batch(0))], None), Fetched([], None))

        await Loop(session).run(moving, quiet)

        assert session.told == [(0, 0), (1, 0), (0, 1)]
        assert len(session.polls) == 3

    asyncio.run(scenario())


def test_a_partition_that_is_claimed_is_left_out_and_polled_for_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetching, "_MOMENT_S", 600.0)  # not over on a busy machine

    async def scenario() -> None:
        copy, other = copying(0), copying(1)
        session = Session(Fetched([fetched(copy, batch(0))], None))
        loop = Loop(session)
        loop.arrived = _Claims()  # type: ignore[assignment]
        loop.loop.on_data = loop.arrived.append

        await loop.run(copy, other)

        assert session.wanted == {1: 0}
        assert session.polls[0]["max_wait_ms"] > session.polls[1]["max_wait_ms"]

    asyncio.run(scenario())


class _Claims(list[PartitionCopy]):
    """Claims a partition as soon as it has data."""

    def append(self, copy: PartitionCopy) -> None:
        copy.begin_claiming()


def test_a_partition_that_left_is_not_fetched_any_more() -> None:
    async def scenario() -> None:
        staying, leaving = copying(0), copying(1)
        session = Session(Fetched([], None))
        loop = Loop(session)
        loop.loop.add(staying, 1)
        loop.loop.add(leaving, 1)
        loop.loop.remove(leaving)

        await loop.run()

        assert session.wanted == {0: 0}

    asyncio.run(scenario())


def test_fetches_pause_while_too_much_waits_for_the_target(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        copy, other = copying(0), copying(1)
        session = Session(Fetched([fetched(copy, batch(0), batch(1))], None))

        await Loop(session).run(copy, other)

        assert len(session.polls) == 1

    monkeypatch.setattr(fetching, "_WAITING_BYTES", 10)
    monkeypatch.setattr(fetching, "_PARTITION_BYTES", 5)
    asyncio.run(scenario())


def test_a_quota_spreads_the_fetches_and_makes_them_small() -> None:
    async def scenario() -> None:
        copy = copying(0)
        session = Session(Fetched([fetched(copy, batch(0))], None), Fetched([], None))

        await Loop(session, Quota(1000)).run(copy)

        assert len(session.polls) == 1, "9 KB at 1 KB/s: the next poll is seconds away"
        assert session.polls[0]["max_bytes"] == 1 << 16

    asyncio.run(scenario())


def test_a_pause_that_the_broker_asks_for_is_kept() -> None:
    async def scenario() -> None:
        session = Session(Fetched([], None, throttle_time_ms=10_000), Fetched([], None))

        await Loop(session).run(copying(0))

        assert len(session.polls) == 1

    asyncio.run(scenario())


def test_full_answers_that_take_long_make_the_next_ones_larger(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        copy = copying(0)
        session = Session(Fetched([fetched(copy, batch(0))], None), Fetched([], None))
        loop = Loop(session)

        await loop.run(copy)

        assert loop.loop._partition_bytes == 12_000

    monkeypatch.setattr(fetching, "_PARTITION_BYTES", 6000)
    monkeypatch.setattr(fetching, "_LONG_WAY_S", 0.0)
    asyncio.run(scenario())


def test_a_source_that_was_quick_once_is_near_however_slow_it_is_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        copy = copying(0)
        loop = Loop(Session())
        loop.loop.add(copy, 1)
        loop.loop._apply_changes()

        loop.loop._dispatch(Fetched([], None), 0.001)
        loop.loop._dispatch(Fetched([fetched(copy, batch(0))], None), 1.0)

        assert loop.loop._partition_bytes == 6000

    monkeypatch.setattr(fetching, "_PARTITION_BYTES", 6000)
    asyncio.run(scenario())


def test_trouble_of_one_partition_is_told_and_the_others_go_on() -> None:
    async def scenario() -> None:
        bad, good = copying(0), copying(1)
        refused = FetchedPartition(bad.source_id, 0, 100, -1, -1, -1, (), memoryview(b""))
        loop = Loop(Session(Fetched([refused, fetched(good, batch(0))], None)))

        await loop.run(bad, good)

        assert loop.trouble == [(bad, 100)]
        assert loop.arrived == [good]

    asyncio.run(scenario())


def test_a_claim_lives_for_a_quarter_of_the_shorter_expiration() -> None:
    assert claim_lifetime_s({}) == 6 * 3600
    assert claim_lifetime_s({"transactional.id.expiration.ms": "8000"}) == 2


def test_every_owner_of_a_target_partition_uses_the_same_transactional_id() -> None:
    assert transactional_id(P_TO_B, TopicPartition("P.T", 3)) == "srm-P->B-P.T-3"
