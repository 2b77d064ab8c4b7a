"""A driver of one flow as a program of its own: python driver_process.py NAME FILE FLOW."""

from __future__ import annotations

import os
import sys
import threading
import time

from srm.config.loader import load_config
from srm.domain.replication_records import DriverHeartbeat
from srm.domain.topics import Flow
from srm.engine.supervision import standing_request
from srm.kafka.driver_log import KafkaDriverLog
from srm.replication.driver.discovery import Discovery
from srm.replication.driver.driver import FlowDriver
from srm.wiring import open_flow


def main(name: str, file: str, text: str) -> None:
    """Drive the flow until a request ends it."""
    config, flow = load_config(file), Flow.parse(text)
    with open_flow(config, flow) as context:
        log = KafkaDriverLog(
            flow, config.client(flow.target, "consumer"), config.client(flow.target, "producer")
        )
        driver = FlowDriver(
            flow,
            log,
            Discovery(context, config.flow(flow)),
            slots=("0",),
            identity=lambda: DriverHeartbeat(
                name, f"app-{name}", "elsewhere", os.getpid(), time.time_ns() // 1_000_000
            ),
            started_after=standing_request(context),
        )
        driver.run(threading.Event())


if __name__ == "__main__":
    main(*sys.argv[1:])
