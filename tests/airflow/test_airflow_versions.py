"""Airflow 3.1 and 3.2: DAGs and plugin load, and the steps of a move behave as with the newest."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from tests.cases import needs_all_cases

pytestmark = [needs_all_cases, pytest.mark.airflow, pytest.mark.timeout(1800)]

PROJECT = Path(__file__).resolve().parents[2]
NEEDED = (
    *("aiokafka", "confluent-kafka", "crc32c", "cramjam", "javaproperties", "numpy"),
    *("platformdirs", "prometheus-client", "psutil", "pyspark", "pyspark-client", "tenacity"),
    *("hypothesis", "pytest", "pytest-randomly", "pytest-timeout"),
)
"""What srm and its tests need next to Airflow, in the versions of this environment."""
TESTS = ("alerts", "approval", "move_wait_operator", "moves", "rest", "triggers")
LOAD = """
import importlib, pathlib, runpy, sys
project = pathlib.Path(sys.argv[1])
for file in sorted((project / "plugins" / "srm_airflow").glob("*.py")):
    importlib.import_module(f"srm_airflow.{file.stem}")
files = sorted((project / "dags").glob("*.py"))
for file in files:
    runpy.run_path(str(file))
print(len(files), "files of DAGs")
"""


@pytest.fixture(params=["3.1.8", "3.2.2"])
def python(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The interpreter of an environment with another Airflow; uv's cache has its packages."""
    home = tmp_path / "venv"
    uv = (sys.executable, "-m", "uv")
    provider = "apache-airflow-providers-apache-spark"
    packages = (f"apache-airflow=={request.param}", f"{provider}=={version(provider)}")
    pinned = tuple(f"{name}=={version(name)}" for name in NEEDED)
    subprocess.run([*uv, "venv", "-q", "--python", sys.executable, str(home)], check=True)
    made = str(home / "bin" / "python")
    subprocess.run([*uv, "pip", "install", "-q", "--python", made, *packages, *pinned], check=True)
    return made


def test_dags_plugin_and_steps_of_a_move_work(python: str, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "PYTHONPATH": os.pathsep.join(str(PROJECT / name) for name in ("src", "plugins")),
    }

    loaded = _run([python, "-W", "ignore", "-c", LOAD, str(PROJECT)], environment)
    files = [f"tests/airflow/test_{name}.py" for name in TESTS]
    tested = _run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files], environment)

    assert f"{len(list((PROJECT / 'dags').glob('*.py')))} files of DAGs" in loaded
    assert " passed" in tested


def _run(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(
        command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout
