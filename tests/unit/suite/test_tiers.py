"""The map of the test files is whole: no slow test and no folder of the product is left out."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta

from tests.again import ROOT
from tests.tiers import FAST, GROUPS, MIXED_FOLDERS, SEARCHES, matches

TESTS = ROOT / "tests"
SOURCE = ROOT / "src"
FILES = [path.relative_to(TESTS).as_posix() for path in TESTS.rglob("test_*.py")]
PLAYED_BY_THE_FAST_TIER = {
    "src/srm/cli",
    "src/srm/cli/flows",
    "src/srm/domain",
    "src/srm/domain/text",
    "src/srm/engine",
    "src/srm_lab",
    "src/srm_lab/docs",
    "src/srm_lab/testing",
    "src/srm_lab/testing/simulation",
    "src/srm_lab/testing/simulation/moves",
}
QUARANTINE = re.compile(r"mark\.quarantined\b(?P<given>(\([^)]*\))?)")
UNTIL = re.compile(r'until="(\d{4}-\d\d-\d\d)"')


def places(test: str) -> list[str]:
    """Return every place of the map that lists a test file."""
    groups = [group.name for group in GROUPS if matches(test, group.tests)]
    return groups + ["fast"] * (test in FAST) + ["searches"] * (test in SEARCHES)


def test_each_file_of_a_mixed_folder_has_one_place_and_other_files_have_none() -> None:
    wrong = {
        name: found
        for name in FILES
        if len(found := places(name)) != name.startswith(MIXED_FOLDERS)
    }

    assert wrong == {}


def test_each_pattern_of_tests_matches_a_file() -> None:
    patterns = [*FAST, *SEARCHES, *(pattern for group in GROUPS for pattern in group.tests)]

    assert [p for p in patterns if not any(matches(name, [p]) for name in FILES)] == []


def test_each_pattern_of_paths_matches_a_file() -> None:
    paths = [
        path.relative_to(ROOT).as_posix()
        for folder in (
            "bench",
            "dags",
            "deploy",
            "docs",
            "examples",
            "plugins",
            "spark_jobs",
            "src",
        )
        for path in (ROOT / folder).rglob("*")
    ]

    patterns = {pattern for group in GROUPS for pattern in group.paths}
    assert [p for p in patterns if not any(matches(name, [p]) for name in paths)] == []


def test_each_folder_of_the_product_selects_a_group() -> None:
    folders = {path.parent.relative_to(ROOT).as_posix() for path in SOURCE.rglob("*.py")}
    patterns = [pattern for group in GROUPS for pattern in group.paths]
    selected = {
        path.parent.relative_to(ROOT).as_posix()
        for path in SOURCE.rglob("*.py")
        if matches(path.relative_to(ROOT).as_posix(), patterns)
    }

    assert folders - selected - PLAYED_BY_THE_FAST_TIER == {"src/srm"} - selected


def test_few_tests_are_in_quarantine_and_each_has_an_end() -> None:
    today = datetime.now(UTC).date()
    texts = [path.read_text(encoding="utf-8") for path in TESTS.rglob("*.py")]
    found = [match["given"] for text in texts for match in QUARANTINE.finditer(text)]
    ends = [date.fromisoformat(until[1]) for given in found if (until := UNTIL.search(given))]

    assert len(found) <= 10
    assert len(ends) == len(found)
    assert all(today <= end <= today + timedelta(days=14) for end in ends)
