"""Cost of clients that follow routes: ``python -m bench.following --clients 50 500 2000``.

One embedded broker. Each client is a bare socket that fetches ``__srm-routing`` as ``srm.client``
does once it has caught up (``srm.kafka.tables.topic_tail.PATIENT``). Measures the broker's CPU with
silent clients, then with clients that announce themselves every 30 s, and the time from a written
route until the last client has it. ``--wait-ms`` is the fetches' limit, ``--in-routing`` writes the
announcements to ``__srm-routing``, both for comparison.
"""

from __future__ import annotations

import argparse
import json
import selectors
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil
from confluent_kafka import Producer

from bench.machine import describe_machine
from srm.config.model import ClusterClients
from srm.domain.moves.announcements import Ack
from srm.domain.moves.routing import CLOCK_KEY
from srm.domain.names import internal_topics
from srm.engine.control.control_topics import create_control_topics
from srm.engine.moves.history import ClientsHistory
from srm.kafka.cluster import KafkaCluster
from srm.kafka.tables.topic_tail import PATIENT
from srm_lab.stack.kafka import KafkaBroker

_REPEAT_S: Final = 30.0
_WARM_S: Final = 5.0
_TOPIC: Final = internal_topics.ROUTING.encode()
_HEAD: Final = struct.pack(">hhih", 1, 4, 1, 5) + b"bench"
_WATERMARK: Final = 4 + 4 + 4 + 4 + 2 + len(_TOPIC) + 4 + 4 + 2
"""Place of the high watermark in an answer: after size, correlation, throttle time and names."""


def fetch(offset: int, wait_ms: int) -> bytes:
    """Encode a fetch of version 4 of the routes from an offset on."""
    body = struct.pack(">iiiib", -1, wait_ms, 1, 1 << 20, 1) + struct.pack(">ih", 1, len(_TOPIC))
    body += _TOPIC + struct.pack(">iiqi", 1, 0, offset, 1 << 20)
    return struct.pack(">i", len(_HEAD) + len(body)) + _HEAD + body


@dataclass
class Followers:
    """Sockets that follow the routes of one broker."""

    address: tuple[str, int]
    wait_ms: int
    answers: int = 0
    offsets: dict[socket.socket, int] = field(default_factory=dict)
    _buffers: dict[socket.socket, bytearray] = field(default_factory=dict)
    _chosen: Any = field(default_factory=selectors.DefaultSelector)

    def grow(self, count: int, offset: int) -> None:
        """Connect until there are so many."""
        while len(self.offsets) < count:
            one = socket.create_connection(self.address)
            one.settimeout(0)
            self._chosen.register(one, selectors.EVENT_READ)
            self.offsets[one], self._buffers[one] = offset, bytearray()
            one.send(fetch(offset, self.wait_ms))

    def serve(self) -> None:
        """Read what has come, and fetch again."""
        for key, _ in self._chosen.select(0.005):
            one, buffer = key.fileobj, self._buffers[key.fileobj]
            buffer += one.recv(1 << 20)
            if len(buffer) < 4 or len(buffer) < 4 + int.from_bytes(buffer[:4], "big"):
                continue
            self.offsets[one] = int.from_bytes(buffer[_WATERMARK : _WATERMARK + 8], "big")
            self.answers += 1
            buffer.clear()
            one.send(fetch(self.offsets[one], self.wait_ms))


@dataclass
class Case:
    """Followers, and a producer that announces all of them."""

    followers: Followers
    producer: Any
    cpu_s: Callable[[], float]
    topic: str

    def run(self, seconds: float, *, announcing: bool) -> dict[str, float]:
        """Follow for some seconds; return the broker's CPU in percent of a core, and rates."""
        count, written = len(self.followers.offsets), 0
        began, cpu, answers = time.monotonic(), self.cpu_s(), self.followers.answers
        while (passed := time.monotonic() - began) < seconds:
            while announcing and written < passed * count / _REPEAT_S:
                ack = Ack(
                    *("group:audit", "shop", 7, "processed", "P", 1_764_000_000_000),
                    positions={f"Payments-{number}": 100 for number in range(3)},
                    instance=f"{written % count:016}",
                )
                self.producer.produce(self.topic, ack.value(), ack.key())
                written += 1
            self.producer.poll(0)
            self.followers.serve()
        return {
            "broker_cpu_percent": round(100 * (self.cpu_s() - cpu) / passed, 1),
            "answers_per_second": round((self.followers.answers - answers) / passed),
            "announcements_per_second": round(written / passed, 1),
        }

    def time_news(self) -> float:
        """Return the seconds until all have a record that is written now."""
        before = dict(self.followers.offsets)
        began = time.monotonic()
        self.producer.produce(internal_topics.ROUTING, b"{}", CLOCK_KEY, 0)
        self.producer.poll(0)
        while any(at <= before[one] for one, at in self.followers.offsets.items()):
            self.followers.serve()
        return round(time.monotonic() - began, 3)


def measure(
    home: Path, counts: list[int], seconds: float, wait_ms: int, topic: str
) -> list[dict[str, float]]:
    """Measure each number of clients on one broker."""
    broker = KafkaBroker(home, "P", heap="512m")
    broker.start()
    found = []
    try:
        broker.wait_ready()
        props = {"bootstrap.servers": broker.bootstrap}
        with closing(KafkaCluster("P", ClusterClients.alike(props))) as cluster:
            create_control_topics(cluster, 1)
            producer = Producer({**props, "linger.ms": 0})
            producer.produce(internal_topics.ROUTING, b"{}", CLOCK_KEY, 0)
            producer.flush()
            host, port = broker.bootstrap.rsplit(":", 1)
            followers, process = Followers((host, int(port)), wait_ms), psutil.Process(broker.pid)

            def cpu_s() -> float:
                used = process.cpu_times()
                return float(used.user + used.system)

            case = Case(followers, producer, cpu_s, topic)
            for count in counts:
                followers.grow(count, max(followers.offsets.values(), default=1))
                row: dict[str, float] = {"clients": count}
                for name, announcing in (("silent", False), ("announcing", True)):
                    case.run(_WARM_S, announcing=announcing)
                    got = case.run(seconds, announcing=announcing)
                    row |= {f"{name}_{key}": value for key, value in got.items()}
                producer.flush()
                row["seconds_to_all"] = case.time_news()
                began = time.monotonic()
                row["announced"] = len(ClientsHistory.read(cluster).acks)
                row["seconds_to_read_announcements"] = round(time.monotonic() - began, 3)
                found.append(row)
                sys.stdout.write(f"{json.dumps(row)}\n")
                sys.stdout.flush()
    finally:
        broker.stop()
    return found


def main() -> int:
    """Measure, print and write build/bench/following.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, nargs="+", default=[50, 500, 2000])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--wait-ms", type=int, default=PATIENT["fetch.wait.max.ms"])
    parser.add_argument("--in-routing", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("build/bench"))
    options = parser.parse_args()
    topic = internal_topics.ROUTING if options.in_routing else internal_topics.CLIENTS
    with tempfile.TemporaryDirectory(prefix="srm-following-") as folder:
        sizes = options.clients, options.seconds, options.wait_ms
        rows = measure(Path(folder), *sizes, topic)
    options.out.mkdir(parents=True, exist_ok=True)
    result = {"machine": describe_machine(), "wait_ms": options.wait_ms, "rows": rows}
    (options.out / "following.json").write_text(json.dumps(result, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
