"""Machine and versions of a run."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil

from bench.clusters import PROJECT
from srm_lab.stack.jars import KAFKA_VERSION
from srm_lab.stack.java import find_java


def describe_machine() -> dict[str, Any]:
    """Return a description of machine and versions."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "java": find_java().version,
        "kafka": KAFKA_VERSION,
        "commit": _commit(),
        "load_before": round(os.getloadavg()[0], 2),
        "time": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
    }


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip()
