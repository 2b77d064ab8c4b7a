"""The driver and one slot of a flow as a program of its own, to be killed.

python -m tests.integration.flow_process FILE FLOW
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from tests.replicating import replicating

from srm.config.loader import load_config
from srm.domain.names.topics import Flow


def main(file: str, text: str) -> None:
    """Copy until the process ends."""
    with replicating(load_config(Path(file)), Flow.parse(text)):
        threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
