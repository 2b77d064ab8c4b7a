"""Damaged batches at random, in memory that ends right behind them: see fuzz.c."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest
from tests.batches import Record, marker, stored
from tests.native import COMPILER

from srm.replication.native import library

SOURCE = Path(__file__).with_name("fuzz.c")
SECONDS = os.environ.get("SRM_FUZZ_SECONDS", "5")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover")


def log(rng: random.Random) -> bytes:
    found, offset = b"", rng.randrange(10)
    for _ in range(rng.randrange(1, 6)):
        records = []
        for _ in range(rng.randrange(1, 20)):
            key = rng.choice([None, b"k" * rng.randrange(30)])
            value = rng.choice([None, b"v" * rng.randrange(300)])
            headers = [("h", b"x")] if rng.random() < 0.2 else []
            records.append(Record(offset, 1000 + rng.randrange(200), key, value, headers))
            offset += rng.choice([1, 1, 1, 1, 2, 100])
        found += stored(records)
        if rng.random() < 0.2:
            found += marker(offset, 7)
            offset += 1
    return found


@pytest.mark.timeout(float(SECONDS) + 200)
def test_no_damage_makes_the_library_read_or_write_beyond_what_it_was_given(
    tmp_path: Path,
) -> None:
    if COMPILER is None:
        pytest.skip("there is no C compiler")
    program = tmp_path / "fuzz"
    build = [COMPILER, "-O1", "-g", f"-I{library.FILE.parent}", str(SOURCE), "-o", str(program)]
    made = subprocess.run([*build, *SANITIZERS], capture_output=True, check=False, timeout=120)
    if made.returncode:  # this compiler came without their libraries: the fences are left
        subprocess.run(build, check=True, capture_output=True, timeout=120)
    rng = random.Random(1)
    seeds = []
    for number in range(40):
        seeds.append(tmp_path / f"seed{number}")
        seeds[-1].write_bytes(log(rng))

    done = subprocess.run(
        [program, SECONDS, str(random.randrange(2**32)), *seeds],
        capture_output=True,
        text=True,
        check=False,
        timeout=float(SECONDS) + 150,
    )

    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[0]) > 1000
