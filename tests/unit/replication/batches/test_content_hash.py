"""Records are compared by hashes that nobody outside of the process can foresee."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys

from srm.replication.batches.batch import content_hash

_PRINT = "from srm.replication.batches.batch import content_hash as h; print(h(b'k', b'v'))"


def test_processes_with_one_hash_seed_hash_by_keys_of_their_own() -> None:
    """Spark starts all its processes with PYTHONHASHSEED=0."""
    environment = {**os.environ, "PYTHONHASHSEED": "0"}

    hashes = {
        subprocess.run(
            [sys.executable, "-c", _PRINT], env=environment, check=True, capture_output=True
        ).stdout
        for _ in range(2)
    }

    assert len(hashes) == 2


def test_parts_that_are_joined_otherwise_or_absent_are_another_content() -> None:
    contents = [
        (b"ab", b"c"),
        (b"a", b"bc"),
        (b"abc",),
        (b"", b"abc"),
        (None, b"abc"),
        (b"abc", b""),
    ]

    hashes = [content_hash(*parts) for parts in contents]

    assert all(one != other for one, other in itertools.combinations(hashes, 2))
    assert hashes == [content_hash(*parts) for parts in contents]
