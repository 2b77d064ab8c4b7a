"""Takes the end of a partition away, as an unclean leader election would."""

from __future__ import annotations

from srm.replication.batches.batch import batches
from srm_lab.stack.kafka import KafkaBroker


def cut(
    broker: KafkaBroker,
    topic: str,
    partition: int,
    share: float,
    lowest: int = 0,
    *,
    forgets_producers: bool = False,
) -> int | None:
    """Kill the broker and cut the newest segment of a log after ``share`` of its batches.

    Not inside a transaction, which would stay open for ever, and not below ``lowest``. A broker
    that ``forgets_producers`` is shut down in order and loses their snapshots: it believes that it
    has nothing to recover, and knows of no producer.

    Returns:
        The offset at which the log ends now; None where there is no place to cut.
    """
    if forgets_producers:
        broker.stop()
    else:
        broker.kill()
    folder = broker.home / "data" / f"{topic}-{partition}"
    segment = max(folder.glob("*.log"))
    places: list[tuple[int, int]] = []
    is_open: set[int] = set()
    at = 0
    for batch in batches(memoryview(segment.read_bytes())):
        if not is_open and batch.base_offset >= lowest:
            places.append((batch.base_offset, at))
        if batch.is_control:
            is_open.discard(batch.producer_id)
        elif batch.is_transactional:
            is_open.add(batch.producer_id)
        at += len(batch.view)
    if not places:
        return None
    offset, place = places[int(share * len(places))]
    with segment.open("r+b") as log:
        log.truncate(place)
    if forgets_producers:
        for known in (*folder.glob("*.snapshot"), *folder.glob("*.*index")):
            known.unlink()
    return offset
