"""A change selects the slow tests of its subject, and says why."""

from __future__ import annotations

from tests.touched import changes, choose

SLOW = ["airflow/test_failover_dag.py", "integration/test_bench.py", "integration/test_quotas.py"]
MODULES = {
    "tests/integration/moving.py": "import srm",
    "tests/integration/returning.py": "from tests.integration.moving import Site",
    "tests/integration/conftest.py": "import pytest",
    "tests/integration/test_quotas.py": "from tests.integration.returning import Site",
    "tests/integration/test_bench.py": "import bench",
    "tests/airflow/test_failover_dag.py": "import airflow",
}


def test_a_path_of_a_group_selects_its_files() -> None:
    chosen = choose(["docs/faults.md", "bench/run.py"], SLOW, MODULES)

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


def test_the_environment_selects_everything() -> None:
    assert list(choose(["pyproject.toml"], SLOW, MODULES)) == SLOW


def test_texts_select_nothing() -> None:
    assert choose(["README.md", "docs/moves.md"], SLOW, MODULES) == {}


def test_an_unknown_commit_is_no_reason_to_select_nothing() -> None:
    assert changes("0" * 40) is None
