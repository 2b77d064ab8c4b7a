"""How long a claim counts, and what it cannot shut out."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from tests.batches import Record, marker, stored
from tests.unit.replication.resume.two_logs import OURS, Log, log_of, walked

from srm import clock
from srm.errors import IntegrityError, UnavailableError
from srm.replication.claim import LAST_EPOCH, Claim, ClaimLifetime
from srm.replication.mapping.starts import Start
from srm.replication.ports import ProducerId
from srm.replication.resume.walk import Comparison

NEW = 9
NEW_CLAIM = Claim(ProducerId(NEW, 0), float("inf"))


class Brokers:
    """Brokers whose settings are changed while they run, and that do not always answer."""

    def __init__(self, expiration_ms: int) -> None:
        self.configs: Mapping[str, str] = {"producer.id.expiration.ms": str(expiration_ms)}
        self.asked = 0
        self.away = False

    async def read(self) -> Mapping[str, str]:
        self.asked += 1
        if self.away:
            raise UnavailableError("away")
        return self.configs


def test_a_lowered_expiration_counts_for_the_next_claims() -> None:
    async def scenario() -> None:
        now = 1000.0
        with clock.using(lambda: now):
            brokers = Brokers(40_000)
            lifetime = ClaimLifetime(brokers.read)
            assert [await lifetime.seconds() for _ in range(3)] == [10.0] * 3
            assert brokers.asked == 1

            brokers.configs = {"producer.id.expiration.ms": "8000"}
            now += 61
            assert await lifetime.seconds() == 2.0

    asyncio.run(scenario())


def test_brokers_that_do_not_answer_have_the_settings_they_had() -> None:
    async def scenario() -> None:
        now = 1000.0
        with clock.using(lambda: now):
            brokers = Brokers(40_000)
            brokers.away = True
            lifetime = ClaimLifetime(brokers.read)
            with pytest.raises(UnavailableError):
                await lifetime.seconds()

            brokers.away = False
            assert await lifetime.seconds() == 10.0
            brokers.away = True
            now += 61
            assert await lifetime.seconds() == 10.0

            brokers.away, brokers.configs = False, {}  # the right to see them was taken away
            assert await lifetime.seconds() == 10.0

    asyncio.run(scenario())


def logs(epoch: int) -> tuple[Log, Log]:
    """Two records were copied under a claim of the old producer id."""
    records = [Record(i, 1, b"k", b"%d" % i) for i in range(2)]
    copies = [Record(1 + r.offset, 1, r.key, r.value) for r in records]
    raw = bytearray(stored(copies, producer_id=OURS))
    raw[51:53] = epoch.to_bytes(2, "big")
    target = Log([marker(0, OURS, epoch), bytes(raw), marker(3, NEW, 0)])
    return log_of(records, [2], 2, -1), target


@pytest.mark.parametrize(("epoch", "has_rotated"), [(LAST_EPOCH, True), (17, False)])
def test_a_producer_id_whose_epochs_are_used_up_is_told_from_one_that_has_expired(
    epoch: int, has_rotated: bool
) -> None:
    source, target = logs(epoch)
    in_log = walked(source, target, Start(0, 0), Comparison(), NEW_CLAIM)
    known = Start(2, 3, written_by=ProducerId(OURS, epoch))
    reported = walked(source, target, known, Comparison(), NEW_CLAIM)

    assert (in_log.has_rotated, reported.has_rotated) == (has_rotated, has_rotated)
    assert (in_log.source_next, reported.source_next) == (2, 2)


def test_the_logs_can_be_asked_without_a_claim_whether_they_are_decidable() -> None:
    source, target = logs(3)
    decided = walked(source, target, Start(0, 0, frozenset({OURS})), Comparison(), None)
    assert decided.source_next == 2

    other = log_of([Record(i, 1, b"other", b"other") for i in range(2)], [2], 2, -1)
    with pytest.raises(IntegrityError, match="undecidable"):
        walked(other, target, Start(0, 0, frozenset({OURS})), Comparison(), None)


@pytest.mark.parametrize(
    ("last", "claims"),
    [(ProducerId(OURS, 4), 2), (ProducerId(OURS, 6), 0), (ProducerId(NEW, 4), 0), (None, 0)],
    ids=["two between", "the last one", "another producer id", "unknown"],
)
def test_claims_are_counted_by_their_epochs(last: ProducerId | None, claims: int) -> None:
    assert Claim(ProducerId(OURS, 7), float("inf")).claims_since(last) == claims
