"""Five runs of the new and changed tests with real processes, beside two busy loops.

``make deflake``: a test that is to land passes each time. Most unsteady tests were young ones.
"""

from __future__ import annotations

import argparse
import sys
from typing import Final

from tests.again import REAL, ROOT, play
from tests.burners import burners
from tests.tiers import matches
from tests.touched import base, changes

_NOTHING_COLLECTED: Final = 5


def main() -> int:
    """Return 1 if a run fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.deflake")
    parser.add_argument("files", nargs="*", help="test files; those changed by default")
    parser.add_argument("--since", help="commit to compare with, the one in .ci/landed by default")
    parser.add_argument("--times", type=int, default=5)
    options = parser.parse_args()
    since = base(options.since)
    changed = [] if options.files else changes(since)
    if changed is None:
        sys.exit(f"{since[:12]} is not in this clone: name another commit with SINCE=COMMIT")
    files = options.files or [
        path for path in changed if matches(path, ["tests/*/test_*.py"]) and (ROOT / path).exists()
    ]
    if not files:
        print("no test has changed")
        return 0
    command = [sys.executable, "-m", "pytest", "-m", " or ".join(sorted(REAL)), *files]
    failed = 0
    with burners():
        for number in range(1, options.times + 1):
            print(f"run {number} of {options.times}: {len(files)} files", flush=True)
            code = play(command, {})
            if code == _NOTHING_COLLECTED:
                print("no changed test has real processes")
                return 0
            failed += code != 0
    print(f"{failed} of {options.times} runs failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
