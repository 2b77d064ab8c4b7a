"""The tutorial, and the commands of the README, typed as the pages show them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(page: str, heading: str) -> list[tuple[str, str]]:
    """Return the blocks of a section: language and text."""
    text = (ROOT / page).read_text("utf-8").split(f"\n{heading}\n")[1]
    return [(kind, block) for kind, block in BLOCK.findall(text.split("\n## ")[0])]


def readme_commands() -> str:
    """Return README's six commands without the one that the tutorial has started."""
    text = (ROOT / "README.md").read_text("utf-8").split("\nSix commands, ")[1]
    found = re.findall(r"^    (srm\S* .*?)(?:\s+#.*)?$", text, re.MULTILINE)
    assert len(found) == 6
    typed = [line for line in found if not line.startswith("srm replicate")]
    return "\n".join(f"{line} --yes" if "failover run" in line else line for line in typed)


def is_shown(line: str, output: str) -> bool:
    """Return whether a line is in the output, with other numbers, names of hosts and spaces."""
    pattern = re.escape(" ".join(line.removesuffix(", ...").split()))
    pattern = re.sub(r"local\\-\d+ on [\w\\-]+", r"\\S+ on \\S+", pattern)
    pattern = re.sub(r"\d[\d,.\\]*", r"[\\d,.]+", pattern)
    return re.search(pattern, " ".join(output.split())) is not None


def test_the_tutorial_and_the_readme_print_what_they_show(tmp_path: Path) -> None:
    steps = blocks("docs/quickstart.md", "## The tutorial")
    *typed, stop = [text for kind, text in steps if kind == "sh"]
    shown = [line for kind, text in steps if not kind for line in text.splitlines()]
    assert (len(typed), stop.count("srm stack down")) == (6, 1)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("SRM_", "COLUMNS"))}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    script = "\n".join(
        ["set -eE", f"trap '{stop}' ERR", *typed, readme_commands(), "trap - ERR", stop]
    )

    ran = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )

    assert ran.returncode == 0, ran.stdout
    assert [line for line in shown if not is_shown(line, ran.stdout)] == [], ran.stdout
    readme = (ROOT / "README.md").read_text("utf-8").split("srm failover run ")[1]
    status = readme.split("```\n")[1].splitlines()
    assert status[0].startswith("P->B: RUNNING")
    assert is_shown(status[0].split(", ")[0], ran.stdout)
