"""A driver of one flow as a program of its own.

python -m tests.integration.driver_process NAME FILE FLOW
"""

from __future__ import annotations

import sys
import threading

from tests.replicating import driver_of, slot_of

from srm.config.loader import load_config
from srm.domain.names.topics import Flow
from srm.wiring import open_flow


def main(name: str, file: str, text: str) -> None:
    """Drive the flow until a request ends it."""
    config, flow = load_config(file), Flow.parse(text)
    with open_flow(config, flow) as context:
        driver_of(context, slot_of(config, flow), name).run(threading.Event())


if __name__ == "__main__":
    main(*sys.argv[1:])
