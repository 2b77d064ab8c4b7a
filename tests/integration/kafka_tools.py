"""Programs of Kafka's own, run as users run them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from srm_lab.stack.jars import kafka_class_path
from srm_lab.stack.java import find_java
from srm_lab.stack.kafka import KafkaBroker, quick_start


def run_tool(main: str, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a class of Kafka, or a Java file beside its jars, in a small JVM; keep its output."""
    return subprocess.run(
        _command(main, arguments),
        check=check,
        capture_output=True,
        text=True,
    )


@contextmanager
def running_tool(main: str, *arguments: str, heap: str = "128m") -> Iterator[subprocess.Popen[str]]:
    """Start such a program and let it run; it is ended afterwards, if it has not ended by then."""
    process = subprocess.Popen(
        _command(main, arguments, heap),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@contextmanager
def client_quota(broker: KafkaBroker, quota: str, rate: int) -> Iterator[None]:
    """Limit the clients named srm on a broker to so many bytes per second."""
    tool = ["kafka.admin.ConfigCommand", "--bootstrap-server", broker.bootstrap]
    tool += ["--entity-type", "clients", "--entity-name", "srm", "--alter"]
    run_tool(*tool, "--add-config", f"{quota}={rate}")
    try:
        yield
    finally:
        run_tool(*tool, "--delete-config", quota)


def _command(main: str, arguments: tuple[str, ...], heap: str = "128m") -> list[str]:
    java = [str(find_java().program), f"-Xmx{heap}", *quick_start()]
    return [*java, "-cp", kafka_class_path(), main, *arguments]
