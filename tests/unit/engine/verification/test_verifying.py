"""Verifications one after another: each begins where the proof of those before it ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest

from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow
from srm.domain.verification.verification import (
    Difference,
    PartitionVerification,
    RangeResult,
    SideResult,
)
from srm.domain.verification.verification_plan import RangePlan
from srm.engine import verification
from srm.engine.ports import FlowMaps
from srm.engine.verification import VerificationRequest, carry_out, carry_out_little

FLOW = Flow("P", "B")
FULL = VerificationRequest(full=True)


class KilledError(Exception):
    """The process is gone."""


@dataclass
class Comparing:
    """Finds all equal but the ranges with changed source offsets; is killed before a wave."""

    width: int = 1
    changed: set[int] = field(default_factory=set)
    unreadable: set[int] = field(default_factory=set)
    killed_at: int | None = None
    before: Callable[[], object] = lambda: None
    seen: list[tuple[int, int]] = field(default_factory=list)
    waves: int = 0

    def __call__(self, ranges: Sequence[RangePlan]) -> list[RangeResult | str]:
        if self.waves == self.killed_at:
            raise KilledError
        self.waves += 1
        self.before()
        self.seen += [(plan.source_start, plan.source_end) for plan in ranges]
        return [self.result(plan) for plan in ranges]

    def result(self, plan: RangePlan) -> RangeResult | str:
        offsets = range(plan.source_start, plan.source_end)
        if self.unreadable.intersection(offsets):
            return "retention was quicker"
        count = sum(run.count for run in plan.runs)
        bad = sorted(self.changed.intersection(offsets))
        difference = None
        if bad:
            difference = Difference(plan.topic, plan.partition, bad[0], bad[0], ("value",))
        return RangeResult(
            SideResult(count, "aa", 0, plan.source_end),
            SideResult(count, "bb" if bad else "aa", 0, plan.target_end),
            0,
            0,
            difference,
        )


@pytest.fixture
def sites(new_sites):
    made = new_sites()
    made.produce("P", 100)
    made.copy("P->B", claim=1)
    return made


def verify(
    sites, comparing: Comparing, request: VerificationRequest | None = None
) -> PartitionVerification:
    context = sites.flow("P->B")
    planned = verification.plan(context, request)
    (result,) = carry_out(context, planned, lambda: comparing).partitions
    return result


def stored(sites) -> PartitionVerification:
    (result,) = verification.latest(sites.flow("P->B").target, FLOW).partitions
    return result


def more(sites, records: int = 20) -> None:
    sites.produce("P", records)
    sites.copy("P->B")


def test_only_what_is_new_is_compared_and_the_result_tells_what_was_proven_before(sites):
    first = verify(sites, Comparing())
    sites.clock.advance(60_000)
    more(sites)

    comparing = Comparing()
    result = verify(sites, comparing)

    assert comparing.seen == [(100, 120)]
    assert (result.outcome, result.source_records, result.earlier_records) == ("equal", 20, 100)
    assert (result.source_start, result.source_end) == (0, 120)
    assert result.earlier_ms == first.time_ms < result.time_ms
    assert [(s.source_start, s.source_end, s.records) for s in result.proven] == [(0, 120, 120)]
    assert stored(sites) == result


def test_without_news_nothing_is_compared_nor_started(sites):
    verify(sites, Comparing())
    context = sites.flow("P->B")

    def start() -> Comparing:
        raise AssertionError("nothing is to be compared")

    (result,) = carry_out(context, verification.plan(context), start).partitions

    assert (result.outcome, result.source_records, result.earlier_records) == ("equal", 0, 100)


def test_what_is_little_is_compared_at_once_and_what_is_more_is_left_to_others_untouched(
    sites, monkeypatch
):
    context = sites.flow("P->B")
    monkeypatch.setattr(verification, "MOST_AT_ONCE", 1000)
    comparing = Comparing()

    summary = carry_out_little(context, verification.plan(context), lambda: comparing)

    assert summary is not None
    (result,) = summary.partitions
    assert (result.outcome, result.source_records, comparing.waves) == ("equal", 100, 1)
    assert stored(sites) == result
    cut = replace(FULL, range_records=50)
    assert carry_out_little(context, verification.plan(context, cut), lambda: comparing) is None
    assert (comparing.waves, stored(sites)) == (1, result)


def test_a_full_verification_compares_everything_and_finds_what_was_changed_since(sites):
    verify(sites, Comparing())

    assert verify(sites, Comparing(changed={50})).outcome == "equal"
    result = verify(sites, Comparing(changed={50}), replace(FULL, range_records=40))

    assert result.outcome == "different"
    assert [(s.source_start, s.source_end) for s in result.proven] == [(0, 40), (80, 100)]


def test_what_differs_is_compared_again_until_it_does_not(sites):
    cut = VerificationRequest(range_records=40)
    verify(sites, Comparing(changed={50}), cut)

    again, repaired = Comparing(changed={50}), Comparing()
    assert verify(sites, again, cut).outcome == "different"
    result = verify(sites, repaired, cut)

    assert again.seen == repaired.seen == [(40, 80)]
    assert (result.outcome, result.earlier_records) == ("equal", 60)
    assert [(s.source_start, s.source_end) for s in result.proven] == [(0, 100)]


def test_ranges_that_could_not_be_read_are_all_that_is_left(sites):
    cut = VerificationRequest(range_records=40)

    failed = verify(sites, Comparing(unreadable={50}), cut)
    comparing = Comparing()
    verify(sites, comparing, cut)

    assert (failed.outcome, failed.reason) == ("failed", "retention was quicker")
    assert comparing.seen == [(40, 80)]


@pytest.mark.usefixtures("_small_waves")
def test_a_killed_verification_keeps_what_it_has_proven(sites):
    cut = VerificationRequest(range_records=10)
    with pytest.raises(KilledError):
        verify(sites, Comparing(killed_at=2), cut)

    interim = stored(sites)
    comparing = Comparing()
    result = verify(sites, comparing, cut)

    assert (interim.outcome, "continues" in interim.reason) == ("unverified", True)
    assert comparing.seen[0] == (interim.proven[0].source_end, interim.proven[0].source_end + 10)
    assert result.outcome == "equal"
    assert result.earlier_records == interim.proven[0].records > 0


@pytest.mark.usefixtures("_small_waves")
def test_a_kill_does_not_hide_what_a_former_verification_has_found(sites):
    cut = VerificationRequest(range_records=10)
    found = verify(sites, Comparing(changed={95}), cut)
    more(sites, 40)
    with pytest.raises(KilledError):
        verify(sites, Comparing(changed={95}, killed_at=1), cut)

    assert (stored(sites).outcome, stored(sites).difference) == ("different", found.difference)


@pytest.fixture
def _small_waves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "RANGE_RECORDS", 500)


@pytest.mark.usefixtures("_small_waves")
def test_progress_is_told_after_each_wave(sites):
    told: list[tuple[int, int]] = []
    context = sites.flow("P->B")
    planned = verification.plan(context, VerificationRequest(range_records=10))
    comparing = Comparing()

    carry_out(context, planned, lambda: comparing, lambda *seen: told.append(seen))

    assert len(told) == comparing.waves == 5
    assert told[-1] == (100, 100)


@pytest.mark.parametrize(("side", "topic"), [("P", "Payments"), ("B", "P.Payments")])
def test_a_topic_that_was_created_again_is_compared_from_its_beginning(sites, side, topic):
    verify(sites, Comparing())
    cluster = sites.clusters[side]
    end = cluster.log_ends([type(sites.payments)(topic, 0)])
    cluster.add_topic(topic)
    cluster.produce(topic, 0, *end.values())

    comparing = Comparing()
    verify(sites, comparing)

    assert comparing.seen == [(0, 100)]


@pytest.mark.parametrize(("side", "topic"), [("P", "Payments"), ("B", "P.Payments")])
def test_a_log_that_was_truncated_and_has_grown_again_is_compared_from_its_beginning(
    sites, side, topic
):
    verify(sites, Comparing())
    log = sites.clusters[side]._existing(type(sites.payments)(topic, 0))
    end = log.end
    log.truncate(end - 1)
    log.grow(1, 0)

    comparing = Comparing()
    verify(sites, comparing)

    assert log.end == end
    assert comparing.seen == [(0, 100)]


def test_a_proof_waits_while_the_map_cannot_be_read(sites):
    verify(sites, Comparing())
    maps = sites.flow("P->B").maps

    class Damaged:
        def load(self, _topics, _wanted):
            return FlowMaps({}, errors={sites.payments: "block 7 is damaged"})

    context = replace(sites.flow("P->B"), maps=Damaged())
    (failed,) = carry_out(context, verification.plan(context), Comparing).partitions
    comparing = Comparing()
    result = verify(sites, comparing)

    assert maps is sites.flow("P->B").maps
    assert failed.outcome == "failed"
    assert (result.outcome, comparing.seen) == ("equal", [])


def test_a_topic_that_is_created_again_in_between_is_not_called_equal_nor_proven(sites):
    result = verify(sites, Comparing(before=lambda: sites.clusters["B"].add_topic("P.Payments")))

    assert (result.outcome, result.proven) == ("failed", ())
    assert "verify again" in result.reason


@pytest.mark.parametrize("size", [80, 1000])
@pytest.mark.parametrize(("side", "topic"), [("P", "Payments"), ("B", "P.Payments")])
def test_a_log_that_is_truncated_in_between_is_not_called_equal_nor_proven(
    sites, side, topic, size
):
    """What comes behind is read under a later epoch, which says nothing of what was lost before."""
    verify(sites, Comparing())
    more(sites, 100)
    log = sites.clusters[side]._existing(type(sites.payments)(topic, 0))

    class Electing(Comparing):
        def result(self, plan: RangePlan) -> RangeResult | str:
            found = super().result(plan)
            if plan.source_end < 200:
                return found
            end = log.end
            log.truncate(end - 150)
            log.grow(150, 0)
            epoch = log.epochs[-1][1]
            if side == "P":
                return replace(found, source=replace(found.source, epoch=epoch))
            return replace(found, target=replace(found.target, epoch=epoch))

    result = verify(sites, Electing(), VerificationRequest(range_records=size))
    again = Comparing()
    verify(sites, again)

    assert (result.outcome, result.proven) == ("failed", ())
    assert "verify again" in result.reason
    assert again.seen == [(0, 200)]


def test_a_damaged_record_of_the_past_has_proven_nothing(sites, caplog):
    result = verify(sites, Comparing())
    table = sites.clusters["B"].compacted_topic(internal_topics.verification("P"))
    table.write({result.key(): b"{"})

    comparing = Comparing()
    verify(sites, comparing)

    assert comparing.seen == [(0, 100)]
    assert "is damaged" in caplog.text


def test_gaps_that_the_newest_records_have_left_are_filled(sites):
    newest = VerificationRequest(max_records=10)
    verify(sites, Comparing(), newest)
    more(sites, 30)
    apart = verify(sites, Comparing(), newest)

    comparing = Comparing()
    result = verify(sites, comparing)

    assert [(s.source_start, s.source_end) for s in apart.proven] == [(90, 100), (120, 130)]
    assert comparing.seen == [(0, 90), (100, 120)]
    assert [(s.source_start, s.source_end) for s in result.proven] == [(0, 130)]
