"""What is said of a partition that cannot go on."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Collection, Mapping
from typing import Any, cast

import pytest
from tests.batches import Record, encode, stored
from tests.unit.replication.resume.two_logs import Log

from srm.domain.flow_state.replication_records import AssignedPartition, PartitionNotes
from srm.domain.names.topics import TopicPartition
from srm.domain.offset_map.offset_map import Translated
from srm.domain.offset_map.runs import UNKNOWN_LINEAGE, Lineage, Run
from srm.errors import FencedError, IntegrityError, SrmError, UnavailableError
from srm.replication import codes, log_reader
from srm.replication.copy import write_answers
from srm.replication.mapping.starts import Start, cut_start
from srm.replication.partition import PartitionCopy, Phase
from srm.replication.ports import EpochEnd, FetchedPartition, Produced

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
        copy.rest(Phase.STOPPED, write_answers.Stop(""))

    assert not judged(copy, None).retriable


def test_an_error_of_the_network_is_tried_again_and_a_fence_is_waited_out() -> None:
    assert write_answers.judge_error(UnavailableError("away")) == write_answers.Stop("away")
    fenced = FencedError("mine")
    assert write_answers.judge_error(fenced) is fenced


def test_a_source_that_is_led_elsewhere_is_asked_for_its_leaders() -> None:
    verdict = write_answers.judge_fetch(PartitionCopy(ASSIGNED, Start(5, 6)), 6, None, "P")

    stop = write_answers.Stop("fetch error 6", stale_leader="source")
    assert verdict == write_answers.SourceMoved(stop)


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


class EpochSource(Log):
    """A source that holds leader epochs from some offsets on; one batch an offset."""

    alias = "P"

    def __init__(self, starts: Mapping[int, int], end: int, removed: Collection[int] = ()) -> None:
        epochs = {at: max(e for e, first in starts.items() if first <= at) for at in range(end)}
        super().__init__([led(at, epoch) for at, epoch in epochs.items() if at not in removed])
        self.end = end
        self._starts = starts

    async def epoch_end(self, partition: TopicPartition, epoch: int) -> EpochEnd:
        del partition
        if epoch == max(self._starts):
            return EpochEnd(epoch, self.end)
        higher = [at for e, at in self._starts.items() if e > epoch]
        if not higher:
            return EpochEnd(-1, -1)
        return EpochEnd(max((e for e in self._starts if e <= epoch), default=epoch), min(higher))

    def leaders_changed(self) -> None:
        """Nothing is remembered."""


def led(at: int, leader_epoch: int) -> bytes:
    raw = stored([Record(at, 1, b"k", b"%d" % at)])
    return raw[:12] + leader_epoch.to_bytes(4, "big") + raw[16:]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reader, "_ELECTED_S", 0.0)
    monkeypatch.setattr(log_reader, "_PAUSE_S", 0.0)


def judge(copy: PartitionCopy, source: EpochSource) -> write_answers.Verdict:
    return asyncio.run(write_answers.judge_doubt(copy, cast("Any", source)))


def fetched(copy: PartitionCopy, epoch: int) -> FetchedPartition:
    """Return one batch at the copy's position, written under a leader epoch."""
    view = bytearray(encode([Record(0, 1000, b"k", b"v" * 9000)], 0))
    struct.pack_into(">qii", view, 0, copy.fetch_offset, len(view) - 12, epoch)
    return FetchedPartition(copy.source_id, 0, 0, 1200, 1200, 0, (), memoryview(view))


def test_a_batch_in_the_place_of_what_is_left_out_asks_for_a_new_claim() -> None:
    """A claim asks the source how much of the decided range its log still holds."""
    copy = PartitionCopy(ASSIGNED, Start(1000, 1001, source_lineage=Lineage(((7, 0),))))
    place = ASSIGNED.topic, ASSIGNED.partition, ASSIGNED.topic_id
    note = PartitionNotes.from_decision("discard", "r", place, (1001, 1010), "why", 0, epoch=7)
    copy.limits.decide([note])
    part = fetched(copy, 7)
    other = bytearray(part.records)
    struct.pack_into(">qii", other, 0, 1001, len(other) - 12, 8)
    part.records = memoryview(bytearray(part.records) + other)

    copy.accept(part, None, 1000, read_committed=True)

    assert (copy.in_doubt, copy.fetch_offset) == (True, 1000)
    assert judge(copy, EpochSource({7: 0, 8: 1001}, 1005)) == write_answers.Walk(0)


READ = Lineage(((1, 0), (2, 14)))
"""What was read up to source offset 16."""


def all_copied(lineage: Lineage = READ) -> Start:
    """Return a start at source offset 16 before which each offset was a record."""
    return Start(16, 19, found=Run(0, 1, 16), source_lineage=lineage)


@pytest.mark.parametrize(
    ("starts", "first"),
    [
        ({1: 0, 3: 13}, 13),
        ({1: 0, 3: 15}, 14),
        ({1: 0, 3: 18}, 14),
        ({1: 0}, 14),
        ({1: 0, 2: 12}, 12),
    ],
    ids=["less of it", "more of it", "past the position", "restored", "its epochs used again"],
)
def test_a_log_that_never_had_the_latest_epoch_is_lost_from_where_they_diverge(
    starts: Mapping[int, int], first: int
) -> None:
    copy = PartitionCopy(ASSIGNED, all_copied())
    copy.doubt()

    said = write_answers.Lost(first, 16, "the source's log was truncated there")
    assert judge(copy, EpochSource(starts, 20)) == said


@pytest.mark.parametrize(("copied_to", "loses"), [(14, False), (15, True)])
def test_a_source_that_lost_only_markers_after_the_last_copied_record_has_lost_nothing(
    copied_to: int, *, loses: bool
) -> None:
    """The position passes markers; an election takes the source back to offset 14."""
    start = Start(16, 19, found=Run(0, 4, copied_to), source_lineage=READ)
    copy = PartitionCopy(ASSIGNED, start)
    copy.doubt()

    verdict = judge(copy, EpochSource({1: 0, 3: 14}, 20))

    assert isinstance(verdict, write_answers.Lost)
    assert (verdict.first, verdict.end, verdict.only_markers) == (14, 16, not loses)
    copy.cut_at(14, lost=loses)
    assert copy.known_start().truncated is loses
    assert (copy.needs_claim, copy.position_is_unreported) == (True, True), (
        "a report has to go back"
    )


def test_a_log_that_shares_no_epoch_that_was_read_may_diverge_earlier() -> None:
    read = Lineage(((2, 8), (4, 12)))
    start = Start(16, 19, found=Run(0, 3, 6), source_lineage=read)
    copy = PartitionCopy(ASSIGNED, start)
    copy.doubt()

    verdict = judge(copy, EpochSource({1: 0, 5: 6}, 20))

    assert isinstance(verdict, write_answers.Lost)
    assert (verdict.first, verdict.end) == (6, 16)
    assert "or earlier: it holds no leader epoch that was read from 8 on" in verdict.what


def test_an_election_that_lost_nothing_leaves_the_position() -> None:
    copy = PartitionCopy(ASSIGNED, Start(16, 19, source_lineage=READ))
    copy.doubt()
    assert judge(copy, EpochSource({1: 0, 2: 14, 8: 16}, 20)) == write_answers.Fine()

    copy.believe()
    copy.accept(fetched(copy, 8), None, 16, read_committed=True)

    assert copy.needs_claim
    assert copy.position().source_lineage == READ
    assert copy.fetch_lineage == READ.with_epoch(8, 16)


def test_a_later_epoch_that_a_fetch_returns_follows_the_one_that_it_named() -> None:
    """The broker has compared them (KIP-595)."""
    copy = PartitionCopy(ASSIGNED, Start(16, 19, source_lineage=READ))

    copy.accept(fetched(copy, 8), None, 16, read_committed=True)

    assert not copy.in_doubt
    assert copy.fetch_lineage == READ.with_epoch(8, 16)


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
    known = all_copied(Lineage(((1, 0), (2, 15))))
    copy = PartitionCopy(ASSIGNED, cut_start(known, Translated(14), 15))
    copy.doubt()

    assert copy.position().source_lineage == Lineage(((1, 0),))
    assert judge(copy, EpochSource({1: 0, 3: cut_at}, 20)) == said


def test_an_epoch_whose_records_compaction_has_removed_is_not_taken_for_another_log() -> None:
    copy = PartitionCopy(ASSIGNED, Start(16, 19, source_lineage=READ))
    copy.doubt()

    assert judge(copy, EpochSource({1: 0, 3: 16}, 20, removed=(14, 15))) == write_answers.Fine()


def test_one_batch_of_several_epochs_leaves_each_of_them_known() -> None:
    copy = PartitionCopy(ASSIGNED, Start(14, 19, source_lineage=READ.before(14)))
    raw = b"".join(led(at, epoch) for at, epoch in ((14, 2), (15, 2), (16, 4), (17, 5)))
    part = FetchedPartition(copy.source_id, 0, 0, 18, 18, 0, (), memoryview(bytearray(raw)))

    copy.accept(part, None, 14, read_committed=True)

    assert copy.fetch_lineage == READ.with_epoch(4, 16).with_epoch(5, 17)


def test_records_that_were_skipped_were_not_read() -> None:
    copy = PartitionCopy(ASSIGNED, Start(16, 19, source_lineage=READ))

    copy.go_back_to(40)

    assert copy.source_lineage == UNKNOWN_LINEAGE


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
        (7, None, "fetch error 7", ""),
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
    class Shortened(Source):
        alias = "P"

        async def log_range(self, partition: TopicPartition) -> tuple[int, int]:
            del partition
            return 1663, 1663

    copy = PartitionCopy(ASSIGNED, Start(860, 861, source_lineage=Lineage(((7, 0),))))
    copy.note_checked(1663)

    verdict = asyncio.run(write_answers.judge_doubt(copy, cast("Any", Shortened(None))))
    deleted = "deleted on P (retention, or DeleteRecords)"
    assert verdict == write_answers.Lost(860, 1663, deleted)
