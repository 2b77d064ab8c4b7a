"""A process that holds, applies and goes, and kills itself at a given control record write.

    python -m tests.faults.move_runner CONFIG SOURCE TARGET MOVE_ID WRITE MOMENT

``WRITE`` counts from 1; ``MOMENT`` is ``before`` the transaction, ``within`` (brokers have the
records, nothing is committed) or ``after`` the commit.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.integration.moving import hold_and_go

from srm.config.loader import load_config
from srm.kafka.state.writers import KafkaControlWriter
from srm.wiring import open_move


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_at(number: int, moment: str) -> None:
    write = KafkaControlWriter.write
    count = 0

    def deadly(
        writer: KafkaControlWriter,
        tables: Mapping[str, Mapping[bytes, bytes | None]],
        before_commit: Callable[[], None] = lambda: None,
    ) -> dict[str, int]:
        nonlocal count
        count += any(tables.values())
        if count == number and moment == "before":
            die()

        def within() -> None:
            before_commit()
            if count == number and moment == "within":
                die()

        stamps = write(writer, tables, within)
        if count == number and moment == "after":
            die()
        return stamps

    KafkaControlWriter.write = deadly


def main(config: str, source: str, target: str, move_id: str, number: str, moment: str) -> None:
    die_at(int(number), moment)
    with open_move(load_config(Path(config)), source, target) as context:
        hold_and_go(context, move_id)


if __name__ == "__main__":
    main(*sys.argv[1:])
