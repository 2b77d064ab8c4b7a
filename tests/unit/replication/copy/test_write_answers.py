"""What is said of a partition that cannot go on."""

from __future__ import annotations

import asyncio
import struct
from typing import Any, cast

import pytest
from tests.batches import Record, encode, stored
from tests.unit.replication.resume.two_logs import Log

from srm.domain.flow_state.anomalies import PartitionNotes
from srm.domain.flow_state.replication_records import AssignedPartition
from srm.domain.names.topics import TopicPartition
from srm.domain.offset_map.offset_map import Translated
from srm.errors import FencedError, IntegrityError, SrmError, UnavailableError
from srm.replication import codes
from srm.replication.copy import write_answers
from srm.replication.mapping.start_positions import Start, cut_start
from srm.replication.partition.partition import PartitionCopy, Phase
from srm.replication.ports import EpochEnd, FetchedPartition, FetchFrom, Produced

ASSIGNED = AssignedPartition("T", 0, "A" * 21 + "g", "P.T", "B" * 21 + "g")


class Source:
    """A source that has a topic of some id, or none."""

    def __init__(self, topic_id: bytes | None) -> None:
        self._topic_id = topic_id

    async def topic_id(self, topic: str) -> bytes | None:
        assert topic == "T"
        return self._topic_id


def judged(copy: PartitionCopy, topic_id: bytes | None) -> write_answers.Stop:
    error = min(codes.TOPIC_GONE)
    assert write_answers.judge_fetch(copy, error, None, "P") == write_answers.TopicUnknown(error)
    verdict = asyncio.run(write_answers.judge_topic(copy, cast("Any", Source(topic_id)), error))
    assert isinstance(verdict, write_answers.Stop)
    return verdict


@pytest.mark.parametrize(
    ("source_end", "told"), [(9, "from offset 5 to 8 or later"), (5, "re-created; the driver")]
)
def test_a_topic_that_is_gone_says_which_records_went_with_it(source_end: int, told: str) -> None:
    copy = PartitionCopy(ASSIGNED, Start(5, 6))
    copy.source_end = source_end

    verdict = judged(copy, bytes(16))

    assert told in verdict.reason
    assert not verdict.retriable


def test_a_broker_that_has_not_heard_of_a_topic_yet_is_asked_again_soon() -> None:
    copy = PartitionCopy(ASSIGNED, Start(5, 6))

    verdict = judged(copy, copy.source_id)

    assert verdict.retriable
    assert verdict.stale_leader == "source"
    assert "does not know the topic yet" in verdict.reason


def test_a_topic_that_nobody_knows_is_gone_only_after_some_answers() -> None:
    copy = PartitionCopy(ASSIGNED, Start(5, 6))
    assert judged(copy, None).retriable

    for _ in range(10):
        copy.rest(Phase.STOPPED, "")

    assert not judged(copy, None).retriable


def test_an_error_of_the_network_is_tried_again_and_a_fence_is_waited_out() -> None:
    assert write_answers.judge_error(UnavailableError("away")) == write_answers.Stop("away")
    assert write_answers.judge_error(FencedError("mine")) == write_answers.Fenced("mine")


def test_a_source_that_is_led_elsewhere_is_asked_for_its_leaders() -> None:
    verdict = write_answers.judge_fetch(PartitionCopy(ASSIGNED, Start(5, 6)), 6, None, "P")

    assert verdict == write_answers.Stop("fetch error 6", stale_leader="source")


@pytest.mark.parametrize(
    ("error", "stale"),
    [(6, "target"), (56, "target"), (codes.NO_ANSWER, "target"), (19, "")],
    ids=["not the leader", "its disk has failed", "no answer", "too few replicas"],
)
def test_a_refusal_outdates_the_leaders_where_another_broker_may_lead(
    error: int, stale: str
) -> None:
    verdict = write_answers.judge_refusal(
        PartitionCopy(ASSIGNED, Start(5, 6)), Produced(error, -1, ""), "B"
    )

    assert isinstance(verdict, write_answers.Stop)
    assert (verdict.retriable, verdict.stale_leader) == (True, stale)


def test_an_offset_out_of_range_raises_a_doubt_and_decides_nothing() -> None:
    copy = PartitionCopy(ASSIGNED, Start(5, 6))

    assert (
        write_answers.judge_fetch(copy, codes.OFFSET_OUT_OF_RANGE, "", "P") == write_answers.Doubt()
    )


class Restored(Source):
    """A source whose log ends somewhere, and knows leader epochs up to one."""

    def __init__(self, log_end: int, last_epoch: int) -> None:
        super().__init__(None)
        self._end = log_end
        self._last_epoch = last_epoch

    async def log_range(self, partition: TopicPartition) -> tuple[int, int]:
        del partition
        return 0, self._end

    async def epoch_end(self, partition: TopicPartition, epoch: int) -> EpochEnd:
        del partition
        known = epoch <= self._last_epoch
        return EpochEnd(epoch, self._end) if known else EpochEnd(-1, -1)


def fetched(copy: PartitionCopy, epoch: int) -> FetchedPartition:
    """Return one batch at the copy's position, written under a leader epoch."""
    view = bytearray(encode([Record(0, 1000, b"k", b"v" * 9000)], 0))
    struct.pack_into(">qii", view, 0, copy.fetch_offset, len(view) - 12, epoch)
    return FetchedPartition(copy.source_id, 0, 0, 1200, 1200, 0, (), memoryview(view))


def test_a_batch_in_the_place_of_what_is_left_out_asks_for_a_new_claim() -> None:
    """A claim asks the source how much of the decided range its log still holds."""
    copy = PartitionCopy(ASSIGNED, Start(1000, 1001, source_epoch=7))
    place = ASSIGNED.topic, ASSIGNED.partition, ASSIGNED.topic_id
    note = PartitionNotes.from_decision("discard", "r", place, (1001, 1010), "why", 0, epoch=7)
    copy.limits.decide([note])
    part = fetched(copy, 7)
    other = bytearray(part.records)
    struct.pack_into(">qii", other, 0, 1001, len(other) - 12, 8)
    part.records = memoryview(bytearray(part.records) + other)

    copy.accept(part, None, 1000, read_committed=True)

    assert (copy.in_doubt, copy.fetch_offset) == (True, 1000)
    assert of_doubt(copy, Restored(1005, 8)) == write_answers.Walk(0)


def doubting(found_epoch: int) -> PartitionCopy:
    """Return a copy that stands at 1000, behind a batch of epoch 7, and has found another one."""
    copy = PartitionCopy(ASSIGNED, Start(1000, 1001, source_epoch=7))
    copy.accept(fetched(copy, found_epoch), None, 1000, read_committed=True)
    assert copy.in_doubt
    return copy


def of_doubt(copy: PartitionCopy, source: Restored) -> write_answers.Verdict:
    return asyncio.run(write_answers.judge_doubt(copy, cast("Any", source)))


def test_leader_epochs_that_went_back_mean_another_log() -> None:
    """A source that was restored from an older copy, and has elected leaders since."""
    verdict = of_doubt(doubting(found_epoch=4), Restored(1200, last_epoch=8))

    assert isinstance(verdict, write_answers.Replaced)
    assert "1000" in verdict.what


def test_a_log_that_never_had_an_epoch_is_asked_again_and_then_disbelieved() -> None:
    copy = PartitionCopy(ASSIGNED, Start(1000, 1001, source_epoch=7))
    copy.doubt()
    source = Restored(1200, last_epoch=4)
    verdict = of_doubt(copy, source)
    assert isinstance(verdict, write_answers.Stop)
    assert (verdict.retriable, verdict.stale_leader) == (True, "source"), "perhaps an old leader"

    for _ in range(10):
        copy.rest(Phase.STOPPED, "")

    assert isinstance(of_doubt(copy, source), write_answers.Replaced)


def test_an_old_leader_whose_log_is_shorter_does_not_make_a_loss() -> None:
    copy = PartitionCopy(ASSIGNED, Start(1000, 1001, source_epoch=7))
    copy.doubt()
    source = Restored(900, last_epoch=4)
    assert isinstance(of_doubt(copy, source), write_answers.Stop)

    for _ in range(10):
        copy.rest(Phase.STOPPED, "")

    verdict = of_doubt(copy, source)
    assert isinstance(verdict, write_answers.Lost)
    assert (verdict.first, verdict.end) == (900, 1000)


def test_an_election_that_lost_nothing_leaves_what_is_known_of_the_position() -> None:
    copy = doubting(found_epoch=8)
    assert of_doubt(copy, Restored(1200, last_epoch=8)) == write_answers.Fine()

    copy.believe()
    nothing = FetchedPartition(copy.source_id, 0, 0, 1200, 1200, 0, (), memoryview(b""))
    copy.accept(nothing, None, 1000, read_committed=True)
    assert copy.position().source_leader_epoch == 7

    copy.accept(fetched(copy, 8), None, 1000, read_committed=True)
    assert not copy.in_doubt
    assert copy.needs_claim


class CutSource(Log):
    """A source of leader epoch 1 that was truncated, and has grown since under epoch 3."""

    alias = "P"

    def __init__(self, cut_at: int) -> None:
        super().__init__([led(at, 1 if at < cut_at else 3) for at in range(20)])
        self._cut_at = cut_at

    async def epoch_end(self, partition: TopicPartition, epoch: int) -> EpochEnd:
        del partition
        return EpochEnd(1, self._cut_at) if epoch < 3 else EpochEnd(3, self.end)


def led(at: int, leader_epoch: int) -> bytes:
    raw = stored([Record(at, 1, b"k", b"%d" % at)])
    return raw[:12] + leader_epoch.to_bytes(4, "big") + raw[16:]


@pytest.mark.parametrize(
    ("cut_at", "said"),
    [
        (13, write_answers.Lost(13, 14, "the source's log was truncated there")),
        (15, write_answers.Fine()),
    ],
)
def test_a_source_truncated_below_the_place_where_a_target_lost_its_end_is_found_out(
    cut_at: int, said: write_answers.Verdict
) -> None:
    """The position was at source offset 16 of leader epoch 2, and the target's log ends before."""
    known = Start(16, 19, source_epoch=2)
    copy = PartitionCopy(ASSIGNED, cut_start(known, Translated(14), 15))
    source = CutSource(cut_at)

    async def fetched() -> FetchedPartition:
        [part] = (await source.fetch(1, [FetchFrom(copy.source_id, 0, 14, 1 << 20)])).partitions
        return part

    copy.accept(asyncio.run(fetched()), None, 14, read_committed=True)

    assert copy.in_doubt
    assert asyncio.run(write_answers.judge_doubt(copy, cast("Any", source))) == said


@pytest.mark.parametrize("cut_at", [16, 18])
def test_a_leader_that_has_more_of_an_earlier_epoch_instead_of_what_was_copied_is_found_out(
    cut_at: int,
) -> None:
    """It was never told of epoch 2, under which the position was reached."""
    copy = PartitionCopy(ASSIGNED, Start(16, 19, source_epoch=2))
    copy.doubt()

    verdict = asyncio.run(write_answers.judge_doubt(copy, cast("Any", CutSource(cut_at))))

    assert isinstance(verdict, write_answers.Replaced)
    assert "leader epoch 2" in verdict.what


def test_a_leader_that_has_less_of_an_earlier_epoch_tells_of_a_loss_there_or_before() -> None:
    copy = PartitionCopy(ASSIGNED, Start(16, 19, source_epoch=2))
    copy.doubt()

    verdict = asyncio.run(write_answers.judge_doubt(copy, cast("Any", CutSource(13))))

    assert isinstance(verdict, write_answers.Lost)
    assert (verdict.first, verdict.end) == (13, 16)
    assert "or before: nothing of leader epoch 2 is left" in verdict.what


def test_an_epoch_whose_records_compaction_has_removed_is_not_taken_for_another_log() -> None:
    class Compacted(CutSource):
        def __init__(self) -> None:
            left = (*range(14), *range(16, 20))
            Log.__init__(self, [led(at, 1 if at < 14 else 3) for at in left])
            self._cut_at = 16

    copy = PartitionCopy(ASSIGNED, Start(16, 19, source_epoch=2))
    copy.doubt()

    verdict = asyncio.run(write_answers.judge_doubt(copy, cast("Any", Compacted())))

    assert verdict == write_answers.Fine()


def test_the_epoch_of_a_place_further_on_is_not_told_as_that_of_the_position() -> None:
    """The next owner would take the lower epoch that stands there for a log gone back."""
    copy = PartitionCopy(ASSIGNED, cut_start(Start(16, 19, source_epoch=2), Translated(14), 15))

    assert copy.position().source_leader_epoch == -1
    copy.go_back_to(15, 2)
    assert copy.position().source_leader_epoch == 2


@pytest.mark.parametrize(
    ("error", "failure", "reason", "action"),
    [
        (
            codes.TOPIC_RIGHT_MISSING,
            None,
            (
                "TOPIC_AUTHORIZATION_FAILED on P; grant Read on topic T to srm's principal "
                "(docs/security.md)"
            ),
            "grant Read on topic T to srm's principal (docs/security.md)",
        ),
        (
            codes.UNREADABLE,
            IntegrityError("the checksum is wrong", "compare the replicas"),
            "the checksum is wrong; compare the replicas",
            "compare the replicas",
        ),
        (
            codes.NO_ACCESS,
            None,
            "SASL_AUTHENTICATION_FAILED; check the credentials",
            "check the credentials",
        ),
        (6, None, "fetch error 6", ""),
    ],
)
def test_what_keeps_a_partition_from_being_fetched_says_what_to_do_as_a_value(
    error: int, failure: SrmError | None, reason: str, action: str
) -> None:
    verdict = write_answers.judge_fetch(PartitionCopy(ASSIGNED, Start(5, 6)), error, failure, "P")

    assert isinstance(verdict, write_answers.Stop)
    assert (verdict.reason, verdict.action) == (reason, action)


def test_records_that_were_deleted_before_they_were_copied_are_not_all_put_down_to_retention() -> (
    None
):
    class Shortened(Restored):
        alias = "P"

        async def log_range(self, partition: TopicPartition) -> tuple[int, int]:
            del partition
            return 1663, 1663

    copy = PartitionCopy(ASSIGNED, Start(860, 861, source_epoch=7))
    copy.note_checked(1663)

    assert of_doubt(copy, Shortened(1663, 7)) == write_answers.Lost(
        860, 1663, "deleted on P (retention, or DeleteRecords)"
    )
