"""Programs of Kafka's own, run as users run them."""

from __future__ import annotations

import subprocess

from srm.stack.jars import kafka_class_path
from srm.stack.java import find_java


def run_tool(
    main: str, *arguments: str, check: bool = True, timeout_s: float = 60.0
) -> subprocess.CompletedProcess[str]:
    """Run a class of Kafka, or a Java file beside its jars, in a small JVM; keep its output."""
    java = [str(find_java().program), "-Xmx128m", "-XX:TieredStopAtLevel=1"]
    return subprocess.run(
        [*java, "-cp", kafka_class_path(), main, *arguments],
        check=check,
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
