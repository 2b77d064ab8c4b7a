"""All tests and all searches, beside two busy loops: ``make test-all``.

The fault campaign and the simulated world play seeds that no run has played before, hypothesis
searches for new examples, and each safety mechanism is removed in turn. A search that fails is an
issue to file, with the seed it prints.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from typing import Final

from tests.again import play, run
from tests.burners import burners
from tests.cases import ALL_CASES

SIMULATED: Final = 3000
"""Seeds of the simulated world."""
PLAYED: Final = 8
"""Seeds of the fault campaign."""
_SEEDS: Final = 10**6


def main() -> int:
    """Return 1 if a part fails; print what each part took."""
    chance = random.SystemRandom()
    first = chance.randrange(_SEEDS)
    campaign = ",".join(str(chance.randrange(_SEEDS)) for _ in range(PLAYED))
    order = f"--randomly-seed={chance.randrange(_SEEDS)}"
    parts: dict[str, Callable[[], int]] = {
        "tests": lambda: run(
            [order, "--hypothesis-profile=search", *sys.argv[1:], "-m", "not search"],
            {ALL_CASES: "1"},
        ),
        f"campaign, seeds {campaign}": lambda: _python(
            "pytest", "tests/faults/test_campaign.py", SRM_FAULT_SEEDS=campaign
        ),
        f"simulation, seeds {first}:{first + SIMULATED}": lambda: _python(
            "srm_lab.testing.simulation", "--seeds", f"{first}:{first + SIMULATED}", "--jobs", "2"
        ),
        "mutants": lambda: _python("tests.mutants"),
    }
    lines = []
    with burners():
        for name, part in parts.items():
            print(name, flush=True)
            began = time.monotonic()
            code = part()
            minutes = (time.monotonic() - began) / 60
            lines.append(
                (code, f"{'passed' if code == 0 else 'FAILED'}  {minutes:5.1f} min  {name}")
            )
            print(lines[-1][1], flush=True)
    print("\n".join(line for _, line in lines))
    return int(any(code for code, _ in lines))


def _python(module: str, *given: str, **environ: str) -> int:
    return play([sys.executable, "-m", module, *given], environ)


if __name__ == "__main__":
    sys.exit(main())
