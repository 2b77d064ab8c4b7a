"""Measure how unmodified clients follow an address: ``make clients`` (root, Debian, 20 minutes).

    CLIENTS_ARGS="--case dns/dead"       only this one; may be repeated

Results go to build/clients.json and, as a table, to the standard output.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import Producer

from bench.redirect.ids import lose_a_batch
from bench.redirect.reading import values
from bench.redirect.site import DIRECT, FRONT, NAME, B, P, Site
from bench.redirect.tools import Tools

INSIDE: Final = "SRM_REDIRECT_CLIENTS"
LIMITS: Final = {"dead": 90.0, "black hole": 400.0, "alive": 60.0}
JAVA: Final = {
    "3.9.1": ("default", "rebootstrap,metadata.recovery.strategy=rebootstrap"),
    "4.3.1": ("default", "15s,metadata.recovery.rebootstrap.trigger.ms=15000"),
    "4.4.0": (
        "default",
        "15s,metadata.recovery.rebootstrap.trigger.ms=15000",
        "15s-poll30s,metadata.recovery.rebootstrap.trigger.ms=15000,max.poll.interval.ms=30000",
        "15s-kip848,metadata.recovery.rebootstrap.trigger.ms=15000,group.protocol=consumer",
    ),
}
LIBRDKAFKA: Final = (
    "default",
    "15s,metadata.recovery.rebootstrap.trigger.ms=15000",
    "15s-kip848,metadata.recovery.rebootstrap.trigger.ms=15000,group.protocol=consumer",
)
OUT: Final = Path("build/clients.json")
IDS: Final = "ids"
"""Case of a producer whose id belongs to another producer on the new cluster."""
_START_S: Final = 300.0
_LEAST_S: Final = 45.0
_WORKING: Final = 20
"""Acknowledged records after which a client counts as working."""


@dataclass(frozen=True)
class Outcome:
    """One client in one case; seconds from the change of the address, None: not in time.

    ``lost``: acknowledged records that are on neither cluster.
    ``skipped``: records of B before the first one read; without offsets its consumer starts at the
    earliest.
    """

    case: str
    client: str
    limit_s: float
    produced_s: float | None
    consumed_s: float | None
    acknowledged: int
    lost: int
    skipped: int | None


class Probes:
    """Clients of one case, and their output with times."""

    def __init__(self, tools: Tools, servers: str, topic: str, home: Path) -> None:
        self.names: list[str] = []
        self.said: queue.SimpleQueue[tuple[float, str]] = queue.SimpleQueue()
        self._processes: list[subprocess.Popen[str]] = []
        for version, variants in JAVA.items():
            probes = [f"java-{version}-{variant}" for variant in variants]
            java = [tools.java, "-Xmx128m", "-XX:+UseSerialGC", "-cp", tools.probes[version]]
            self._start([*java, "Probe", servers, topic, *probes], probes, home)
        probes = [f"librdkafka-{variant}" for variant in LIBRDKAFKA]
        python = [sys.executable, "-m", "bench.redirect.probe"]
        self._start([*python, servers, topic, *probes], probes, home)

    def stop(self) -> None:
        """End all of them."""
        for process in self._processes:
            process.kill()
            process.wait()

    def heard(self, seconds: float) -> Iterator[tuple[float, str]]:
        """Yield the output within a time."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            try:
                yield self.said.get(timeout=left)
            except queue.Empty:
                return

    def _start(self, command: list[str], probes: list[str], home: Path) -> None:
        self.names += [probe.partition(",")[0] for probe in probes]
        errors = (home / "probes.log").open("ab")
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        self._processes.append(process)
        threading.Thread(target=self._listen, args=(process,), daemon=True).start()

    def _listen(self, process: subprocess.Popen[str]) -> None:
        for line in process.stdout or ():
            self.said.put((time.monotonic(), line.strip()))


class Case:
    """Case in which all clients work on P, then P changes, then the address."""

    def __init__(self, site: Site, tools: Tools, name: str, home: Path) -> None:
        self._site, self._name = site, name
        self._method, _, self._fate = name.partition("/")
        self._topic, self._limit_s = name.replace("/", "-").replace(" ", "-"), LIMITS[self._fate]
        site.create(self._topic)
        servers = f"{NAME}:{DIRECT}" if self._method == "dns" else f"{FRONT}:{DIRECT}"
        self._over = threading.Event()
        self._marking = threading.Thread(target=self._mark, daemon=True)
        self._marking.start()
        self._probes = Probes(tools, servers, self._topic, home)
        self._acknowledged: dict[str, set[str]] = {name: set() for name in self._probes.names}
        self._consumed: dict[str, float] = {}
        self._skipped: dict[str, int] = {}

    def run(self) -> list[Outcome]:
        """Run it, and restore P."""
        try:
            self._until_all_work()
            wall = time.time()
            self._change()
            self._watch()
        finally:
            self._probes.stop()
            self._over.set()
            self._marking.join()
            self._restore()
        on_b = values(f"{B}:{DIRECT}", self._topic)
        produced: dict[str, float] = {}
        for value, stamp in on_b.items():
            name = value.partition("/")[0]
            produced[name] = min(produced.get(name, float("inf")), stamp / 1000 - wall)
        kept = set(on_b) | set(values(f"{P}:{DIRECT}", self._topic))
        return [
            Outcome(
                self._name,
                name,
                self._limit_s,
                _rounded(produced.get(name)),
                _rounded(self._consumed.get(name)),
                len(self._acknowledged[name]),
                len(self._acknowledged[name] - kept),
                self._skipped.get(name),
            )
            for name in self._probes.names
        ]

    def _mark(self) -> None:
        """Write records that only B has, without a producer id so that none can collide."""
        marks = Producer({"bootstrap.servers": f"{B}:{DIRECT}", "enable.idempotence": False})
        number = 0
        while not self._over.wait(0.2):
            marks.produce(self._topic, f"B/{number}", partition=0)
            marks.poll(0)
            number += 1
        marks.flush(30)

    def _until_all_work(self) -> None:
        missing = set(self._probes.names)
        for _, line in self._probes.heard(_START_S):
            self._take(line)
            missing = {name for name in missing if len(self._acknowledged[name]) < _WORKING}
            if not missing:
                return
        raise RuntimeError(f"{self._name}: {missing} do not work on P")

    def _change(self) -> None:
        if self._fate == "dead":
            self._site.kill_broker("P")
        elif self._fate == "black hole":
            self._site.detach_p()
        self._point_to("B")

    def _watch(self) -> None:
        began = time.monotonic()
        for at, line in self._probes.heard(self._limit_s):
            word, rest = self._take(line)
            if word == "read":
                name, _, value = rest.partition(" ")
                self._consumed.setdefault(name, at - began)
                self._skipped.setdefault(name, int(value.partition("/")[2]))
            if at - began > _LEAST_S and len(self._consumed) == len(self._probes.names):
                return  # producers follow before consumers

    def _restore(self) -> None:
        if self._fate == "dead":
            self._site.start_broker("P")
        elif self._fate == "black hole":
            self._site.attach_p()
        self._point_to("P")

    def _point_to(self, alias: str) -> None:
        if self._method == "dns":
            self._site.point_name_to(P if alias == "P" else B)
        else:
            self._site.balance_to(alias)

    def _take(self, line: str) -> tuple[str, str]:
        """Store acknowledged records."""
        word, _, rest = line.partition(" ")
        if word == "ack":
            self._acknowledged[rest.partition("/")[0]].add(rest)
        return word, rest


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)


def table(outcomes: list[Outcome]) -> str:
    """Return the results as Markdown: writes / reads / lost, by client and case."""
    cases = list(dict.fromkeys(one.case for one in outcomes))
    cells = {(one.client, one.case): one for one in outcomes}
    lines = [
        "| client | " + " | ".join(cases) + " |",
        "|---" * (len(cases) + 1) + "|",
    ]
    for client in dict.fromkeys(one.client for one in outcomes):
        row = [_cell(cells.get((client, case))) for case in cases]
        lines.append(f"| {client} | " + " | ".join(row) + " |")
    return "\n".join(lines)


def _cell(one: Outcome | None) -> str:
    if one is None:
        return ""
    times = ["never" if s is None else f"{s:.0f} s" for s in (one.produced_s, one.consumed_s)]
    lost = f", **{one.lost} lost**" if one.lost else ""
    skipped = f", {one.skipped} skipped" if one.skipped else ""
    return f"{times[0]} / {times[1]}{skipped}{lost}"


def main() -> None:
    """Measure all cases, or the named ones."""
    parser = argparse.ArgumentParser(prog="make clients", description=__doc__)
    every = [f"{method}/{fate}" for method in ("dns", "haproxy") for fate in LIMITS] + [IDS]
    parser.add_argument("--case", action="append", choices=every, dest="cases")
    chosen = parser.parse_args().cases or every
    tools = Tools.prepare()
    if INSIDE not in os.environ:
        again = [sys.executable, "-m", "bench.redirect.run", *sys.argv[1:]]
        shell = "mount -t tmpfs none /run/netns 2>/dev/null || (mkdir -p /run/netns && "
        shell += 'mount -t tmpfs none /run/netns); exec "$@"'
        command = ["unshare", "--net", "--mount", "sh", "-c", shell, "sh", *again]
        sys.exit(subprocess.run(command, env={**os.environ, INSIDE: "1"}, check=False).returncode)
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="srm-clients-") as folder:
        site = Site(tools, Path(folder))
        try:
            site.start()
            if IDS in chosen:
                print(json.dumps(lose_a_batch(site)), flush=True)
            for case in [case for case in chosen if case != IDS]:
                found = Case(site, tools, case, Path(folder)).run()
                outcomes += found
                print(table(found), flush=True)
        finally:
            site.stop()
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps([asdict(one) for one in outcomes], indent=2) + "\n")
    print(table(outcomes))


if __name__ == "__main__":
    main()
