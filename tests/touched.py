"""Choice of the slow tests for a change: ``make test-touched``.

The change is what differs from the commit in ``.ci/landed``, the newest one that has passed every
slow group. A session that lands its work writes the commit it began with into that file; an older
commit there only selects more. ``SINCE=COMMIT`` names another one.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from tests.again import ROOT, run
from tests.tiers import EVERYTHING, GROUPS, group_of, matches

GATE: Final = ("tests/again.py", "tests/tiers.py")
"""Modules that `tests/conftest.py` imports, but that no result of a slow test depends on."""


def main() -> int:
    """Print the choice with its reasons, then run it; return pytest's exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.touched")
    parser.add_argument("--since", help="commit to compare with, the one in .ci/landed by default")
    parser.add_argument("--show", action="store_true", help="print the choice and run nothing")
    options, given = parser.parse_known_args()
    since = base(options.since)
    changed = changes(since)
    if changed is None:
        print(f"{since[:12]} is not in this clone: every slow group runs")
        chosen = dict.fromkeys(slow_files(), "all")
    else:
        print(f"{len(changed)} files changed since {since[:12]}")
        chosen = choose(changed, slow_files(), helpers())
    for reason in sorted(set(chosen.values())):
        print(f"  {reason}: {sum(found == reason for found in chosen.values())} files")
    if not chosen:
        print("  no slow test is touched")
    if options.show or not chosen:
        return 0
    return run([*given, *(f"tests/{name}" for name in sorted(chosen))])


def base(given: str | None) -> str:
    """Return the commit to compare with: the one given, or else the one in ``.ci/landed``."""
    return given or (ROOT / ".ci" / "landed").read_text("utf-8").strip()


def changes(since: str) -> list[str] | None:
    """Return paths that differ from a commit, untracked ones too; ``None`` if it is unknown."""
    known = subprocess.run(
        ["git", "cat-file", "-e", f"{since}^{{commit}}"], cwd=ROOT, capture_output=True, check=False
    )
    if known.returncode:
        return None
    tracked = _git("diff", "--name-only", "--no-renames", "-z", since, "--")
    return sorted({*tracked, *_git("ls-files", "--others", "--exclude-standard", "-z")})


def _git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True)
    return os.fsdecode(done.stdout).split("\0")[:-1]


def slow_files() -> list[str]:
    """Return the test files of all groups, as paths below ``tests/``."""
    tests = ROOT / "tests"
    names = (path.relative_to(tests).as_posix() for path in tests.rglob("test_*.py"))
    return sorted(name for name in names if group_of(name))


def helpers() -> Mapping[str, str]:
    """Return the text of each module below ``tests/`` by its path in the repository."""
    return {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for path in (ROOT / "tests").rglob("*.py")
    }


def choose(
    changed: Collection[str], slow: Iterable[str], modules: Mapping[str, str]
) -> dict[str, str]:
    """Return the slow test files that a change selects, each with the reason.

    A file is selected if it has changed, if it imports a changed module of ``tests/`` directly or
    through others, or if a changed path belongs to its group. Fixtures, and files that are no
    modules, belong to all tests of their folder.

    Args:
        changed: paths in the repository.
        slow: test files of all groups, below ``tests/``.
        modules: text of the modules below ``tests/``, by path in the repository.
    """
    everything = [path for path in changed if matches(path, EVERYTHING)]
    if everything:
        return dict.fromkeys(slow, f"all, by {everything[0]}")
    reasons = {
        group.name: touched[0]
        for group in GROUPS
        if (touched := [path for path in changed if matches(path, group.paths)])
    }
    importers = _importers(
        [path for path in changed if path.startswith("tests/") and path not in GATE], modules
    )
    chosen = {}
    for name in slow:
        group = group_of(name)
        if group and group.name in reasons:
            chosen[name] = f"group {group.name}, by {reasons[group.name]}"
        elif f"tests/{name}" in importers:
            chosen[name] = f"tests that changed, by {importers[f'tests/{name}']}"
    return chosen


def _importers(changed: Iterable[str], modules: Mapping[str, str]) -> dict[str, str]:
    """Return the changed modules and all that import them, each with the change that reaches it."""
    reached = {path: path for path in changed}
    fresh = dict(reached)
    while fresh:
        found = {}
        for path, origin in fresh.items():
            package, _, name = path.removesuffix(".py").replace("/", ".").rpartition(".")
            imported = re.compile(rf"\b{package}(\.| import .*\b){re.escape(name)}\b")
            folder = path.rpartition("/")[0] + "/"
            of_folder = path.endswith("/conftest.py") or not path.endswith(".py")
            for other, text in modules.items():
                local = of_folder and other.startswith(folder)
                if other not in reached and (local or imported.search(text)):
                    found[other] = origin
        reached |= found
        fresh = found
    return reached


if __name__ == "__main__":
    sys.exit(main())
