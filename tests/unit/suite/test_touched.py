"""A change selects the slow tests of its subject, and says why."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests import deflake, touched
from tests.touched import changes, choose

SLOW = ["airflow/test_failover_dag.py", "integration/test_bench.py", "integration/test_quotas.py"]
MODULES = {
    "tests/integration/moving.py": "import srm",
    "tests/integration/returning.py": "from tests.integration import moving",
    "tests/integration/conftest.py": "import pytest",
    "tests/integration/test_quotas.py": "from tests.integration.returning import Site",
    "tests/integration/test_bench.py": "import bench",
    "tests/airflow/test_failover_dag.py": "import airflow",
}


def test_a_path_of_a_group_selects_its_files() -> None:
    chosen = choose(["docs/testing.md", "bench/run.py"], SLOW, MODULES)

    assert chosen == {"integration/test_bench.py": "group bench, by bench/run.py"}


def test_a_changed_module_selects_the_tests_that_reach_it() -> None:
    chosen = choose(["tests/integration/moving.py"], SLOW, MODULES)

    assert chosen == {
        "integration/test_quotas.py": "tests that changed, by tests/integration/moving.py"
    }


def test_a_changed_test_selects_itself() -> None:
    assert list(choose(["tests/airflow/test_failover_dag.py"], SLOW, MODULES)) == SLOW[:1]


def test_fixtures_select_the_tests_of_their_folder() -> None:
    assert list(choose(["tests/integration/conftest.py"], SLOW, MODULES)) == SLOW[1:]


def test_the_map_of_tests_selects_nothing() -> None:
    modules = {"tests/conftest.py": "from tests.tiers import tier", "tests/tiers.py": "", **MODULES}
    assert choose(["tests/tiers.py"], SLOW, modules) == {}


def test_a_file_that_tests_read_selects_the_tests_of_its_folder() -> None:
    assert list(choose(["tests/integration/Probe.java"], SLOW, MODULES)) == SLOW[1:]


def test_the_environment_selects_everything() -> None:
    assert list(choose(["pyproject.toml"], SLOW, MODULES)) == SLOW


def test_texts_select_nothing() -> None:
    assert choose(["README.md", "docs/failover.md"], SLOW, MODULES) == {}


def test_an_unknown_commit_is_no_reason_to_select_nothing() -> None:
    assert changes("0" * 40) is None


def test_both_names_of_a_renamed_file_have_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*given: str) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a", *given], check=True)

    monkeypatch.setattr(touched, "ROOT", tmp_path)
    monkeypatch.chdir(tmp_path)
    git("init", "-q")
    (tmp_path / "old name").write_text("text\n" * 20)
    git("add", ".")
    git("commit", "-q", "-m", "first")
    git("mv", "old name", "né w")
    (tmp_path / "not added").touch()

    assert changes("HEAD") == ["not added", "né w", "old name"]


def test_new_tests_cannot_be_named_without_their_base(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["deflake", "--since", "0" * 40])
    with pytest.raises(SystemExit, match="is not in this clone"):
        deflake.main()
