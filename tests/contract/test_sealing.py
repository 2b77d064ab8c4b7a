"""What a restore asks of logs: a claim that is their end, and records that are not ours."""

from __future__ import annotations

import pytest
from tests.contract.wire_places import Place, until
from tests.contract.wire_sites import WireSite

from srm.domain.names.topics import Flow
from srm.errors import FencedError
from srm.replication import codes
from srm.replication.claim import (
    Claim,
    begins_with_records,
    first_record_in,
    seal,
    transactional_id,
)
from srm.replication.log_reader import LogReader
from srm.replication.ports import Wire

FLOW = Flow("P", "B")


def reader(wire: Wire, place: Place) -> LogReader:
    return LogReader(wire, place.at, place.topic_id, read_committed=False)


def test_a_seal_is_the_last_thing_in_the_log_and_its_former_owner_writes_no_more(
    wire_site: WireSite, place: Place
) -> None:
    async def scenario(wire: Wire) -> None:
        first = await seal(reader(wire, place), FLOW)
        await place.produce(wire, 3, producer=first.claim.producer)
        second = await seal(reader(wire, place), FLOW)

        [late] = await place.produce(wire, 1, producer=first.claim.producer, sequence=3)

        assert (first.marker, second.marker) == (0, 4)
        assert second.claim.producer.epoch > first.claim.producer.epoch
        assert late.error in codes.FENCED
        assert await wire.log_range(place.at) == (0, 5)

    wire_site.run(scenario)


def test_a_log_that_somebody_else_claims_in_between_is_not_sealed(
    wire_site: WireSite, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(wire: Wire) -> None:
        async def claimed_again(_target: object, _end: int, claim: Claim) -> Claim:
            await place.claim(wire, transactional_id(FLOW, place.at))

            async def both() -> bool | None:
                return (await wire.log_range(place.at))[1] == 2 or None

            await until(both)
            return claim

        monkeypatch.setattr("srm.replication.claim.until_in_force", claimed_again)
        with pytest.raises(FencedError, match="another process writes to it"):
            await seal(reader(wire, place), FLOW)

    wire_site.run(scenario)


def test_records_are_told_from_markers_at_the_start_and_in_holes(
    wire_site: WireSite, place: Place
) -> None:
    async def scenario(wire: Wire) -> None:
        log = reader(wire, place)
        assert not await begins_with_records(log)
        claim = (await seal(log, FLOW)).claim  # at 0
        assert not await begins_with_records(log)
        await place.produce(wire, 3, producer=claim.producer)  # 1 to 3
        await seal(log, FLOW)  # at 4
        await place.produce(wire, 2)  # 5 and 6, somebody else's

        assert not await begins_with_records(log)
        assert await first_record_in(log, [(0, 1), (4, 5), (7, 99)]) is None
        assert await first_record_in(log, [(0, 1), (4, 7)]) == 5
        assert await first_record_in(log, [(2, 3)]) == 2
        wire_site.trim(place.at.topic, 0, 5)
        assert await begins_with_records(log)
        assert await first_record_in(log, [(0, 5)]) is None

    wire_site.run(scenario)
