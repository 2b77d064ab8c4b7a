"""Wait for the marker of a claim: from then on the claim is in force.

The marker reaches the log shortly after the coordinator has promised it, or late where the
partition lacks in-sync followers. The wait holds no lock and uses no long poll, because a long poll
delays all later requests on its connection.
"""

from __future__ import annotations

import asyncio
from typing import Final

from srm.clock import now_s
from srm.errors import UnavailableError
from srm.replication.batches.batch import batches
from srm.replication.claim.claim import Claim, is_marker
from srm.replication.log_reader import LogReader, OutOfRangeError

_DEADLINE_S: Final = 30.0
_FIRST_PAUSE_S: Final = 0.005
_LONGEST_PAUSE_S: Final = 0.5


async def until_in_force(target: LogReader, end: int, claim: Claim) -> None:
    """Wait until the marker of a claim is in the target's log.

    Args:
        target: reads the log.
        end: where the log ended before the claim.
        claim: just taken.

    Raises:
        UnavailableError: it does not come, or a broker does not answer.
    """
    deadline, pause_s = now_s() + _DEADLINE_S, _FIRST_PAUSE_S
    while now_s() < deadline:
        _, log_end = await target.wire.log_range(target.partition)
        if log_end <= end:
            await asyncio.sleep(pause_s)  # between two looks, longer and longer
            pause_s = min(_LONGEST_PAUSE_S, 2 * pause_s)
            continue
        try:
            fetched = await target.fetch(end)
        except OutOfRangeError as error:
            end = max(end, error.log_start)
            continue
        for batch in batches(fetched.records):
            if is_marker(batch, claim):
                return
            end = max(end, batch.last_offset + 1)
    raise UnavailableError(
        f"{target.partition}: the marker of our claim did not reach the log in {_DEADLINE_S:.0f} s"
    )
