"""The wheel, built from the files of a checkout and installed into empty environments."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import pytest
from packaging.tags import sys_tags
from packaging.utils import parse_wheel_filename
from tests.cases import cases

from srm import __version__

pytestmark = pytest.mark.integration

PROJECT = Path(__file__).parents[2]
FILES = ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE")
FOLDERS = ("src", "plugins", "dags", "spark_jobs")
UV = (sys.executable, "-m", "uv")
CONFIG = """\
clusters = P, B
P.bootstrap.servers = 127.0.0.1:1
B.bootstrap.servers = 127.0.0.1:2
P->B.enabled = true
topics = Payments
"""
BUNDLE = [{"name": "srm", "classpath": "srm_airflow.bundle.SrmDagBundle", "kwargs": {}}]
DAGS = {
    *("srm_checkpoints", "srm_drill_P_to_B", "srm_dry_run_P_to_B", "srm_failover"),
    *("srm_failover.P.B", "srm_group_offset_sync", "srm_metrics_aggregation"),
    *("srm_replication", "srm_rpo_P_to_B", "srm_topic_sync", "srm_verification"),
}
Install = Callable[..., Path]


def run(
    *command: object, cwd: Path, env: Mapping[str, str] | None = None, code: int = 0
) -> subprocess.CompletedProcess[str]:
    plain = {k: v for k, v in os.environ.items() if not k.startswith(("AIRFLOW", "SRM", "PYTHON"))}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**plain, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=390,
    )
    assert done.returncode == code, done.stdout[-2000:] + done.stderr[-4000:]
    return done


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel where neither Git nor its list of ignored files is."""
    folder = tmp_path_factory.mktemp("source")
    for name in FILES:
        shutil.copy(PROJECT / name, folder)
    for name in FOLDERS:
        ignored = shutil.ignore_patterns("__pycache__", ".*_cache")
        shutil.copytree(PROJECT / name, folder / name, ignore=ignored)
    run(*UV, "build", "--quiet", "--wheel", "--out-dir", folder / "dist", cwd=folder)
    [made] = (folder / "dist").glob("*.whl")
    return made


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Install:
    """Return the folder of programs of an environment with an extra."""

    @cache
    def install(extra: str = "", *more: str) -> Path:
        home = tmp_path_factory.mktemp("environment") / "venv"
        run(*UV, "venv", "--quiet", home, cwd=home.parent)
        of = f"[{extra}]" if extra else ""
        # Locked versions, unless another one is named: what passes here passes again.
        locked = () if more else ("--constraint", PROJECT / "requirements.txt")
        wanted = (f"kafka-srm{of} @ {wheel.as_uri()}", *more)
        install = (*UV, "pip", "install", "--quiet", "--python", home / "bin" / "python")
        run(*install, *locked, *wanted, cwd=home.parent)
        return home / "bin"

    return install


def test_the_base_installation_is_small(wheel: Path, tmp_path: Path) -> None:
    lock = tmp_path / "pylock.toml"
    wanted = tmp_path / "wanted.in"
    wanted.write_text(f"kafka-srm @ {wheel.as_uri()}\n")
    run(*UV, "pip", "compile", "--quiet", wanted, "--output-file", lock, cwd=tmp_path)
    packages = tomllib.loads(lock.read_text())["packages"]
    others = [package for package in packages if package["name"] != "kafka-srm"]

    tags = {tag: rank for rank, tag in enumerate(sys_tags())}

    def size(package: Mapping[str, list[dict[str, str | int]]]) -> int:
        ranked = {}
        for file in package["wheels"]:
            name = str(file["url"]).rsplit("/", maxsplit=1)[-1]
            for tag in parse_wheel_filename(name)[3] & tags.keys():
                ranked[tags[tag]] = int(file["size"])
        return ranked[min(ranked)]

    assert len(others) <= 16, sorted(package["name"] for package in others)
    assert sum(map(size, others)) <= 30_000_000
    assert wheel.stat().st_size <= 2_500_000


def test_the_base_installation_has_every_command(installed: Install, tmp_path: Path) -> None:
    programs = installed()

    assert run(programs / "srm", "--version", cwd=tmp_path).stdout == f"srm {__version__}\n"
    for command in (["srm"], ["srm", "failover", "run"], ["srm", "follow"], ["srm-control"]):
        assert "--help" in run(programs / command[0], *command[1:], "--help", cwd=tmp_path).stdout
    (tmp_path / "srm.properties").write_text(CONFIG)
    run(programs / "srm", "config", "check", cwd=tmp_path)
    run(programs / "python", "-c", "import srm.client.consumer, srm.client.aio", cwd=tmp_path)


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        (["srm", "replicate"], "spark"),
        (["srm-service"], "service"),
        (["srm", "stack", "up"], "lab"),
    ],
)
def test_a_command_without_its_extra_names_it_in_one_line(
    installed: Install, tmp_path: Path, command: list[str], extra: str
) -> None:
    (tmp_path / "srm.properties").write_text(CONFIG)

    done = run(installed() / command[0], *command[1:], cwd=tmp_path, code=2)

    [line] = done.stderr.splitlines()
    assert line.endswith(f"pip install 'kafka-srm[{extra}]'")


def test_programs_that_use_the_client_see_its_types(installed: Install, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(
        "from srm.client.consumer import FailoverConsumer\nreveal_type(FailoverConsumer.poll)\n"
    )
    mypy = (sys.executable, "-m", "mypy", "--python-executable", installed() / "python")

    done = run(*mypy, "--config-file", os.devnull, "app.py", cwd=tmp_path)

    assert "def (self: srm.client.consumer.FailoverConsumer" in done.stdout


@pytest.mark.parametrize(
    ("extra", "modules"),
    [
        ("parquet", "pyarrow.parquet, srm.pages.files"),
        ("service", "srm.service.app, srm.cli.flows.service"),
        ("spark", "srm.spark.replicator, srm.spark.verification"),
    ],
)
def test_each_extra_has_what_its_modules_import(
    installed: Install, tmp_path: Path, extra: str, modules: str
) -> None:
    run(installed(extra) / "python", "-c", f"import {modules}", cwd=tmp_path)


@pytest.mark.parametrize("version", cases(["3.3.2"], ["3.1.8", "3.2.2"]))
@pytest.mark.timeout(1500)
def test_one_bundle_line_makes_all_dags_and_pages_in_an_existing_airflow(
    installed: Install, tmp_path: Path, version: str
) -> None:
    """No file is copied: the provider and the plugin come from entry points."""
    airflow = (installed("airflow", f"apache-airflow=={version}") / "python", "-m", "airflow")
    (tmp_path / "srm.properties").write_text(CONFIG)
    env = {
        "AIRFLOW_HOME": str(tmp_path / "home"),
        "SRM_CONFIG": str(tmp_path / "srm.properties"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(BUNDLE),
        # The first file imports half of Airflow.
        "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "300",
        "AIRFLOW__DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT": "300",
    }

    def table(*words: str) -> list[dict[str, str]]:
        text = run(*airflow, *words, "--output", "json", cwd=tmp_path, env=env).stdout
        return list(json.loads(text[text.index("[{") :])) if "[{" in text else []

    run(*airflow, "db", "migrate", cwd=tmp_path, env=env)
    run(*airflow, "dag-processor", "--num-runs", "1", cwd=tmp_path, env=env)

    assert table("dags", "list-import-errors") == []
    assert {dag["dag_id"] for dag in table("dags", "list")} == DAGS
    assert "kafka-srm" in {provider["package_name"] for provider in table("providers", "list")}
    [plugin] = [one for one in table("plugins") if one["name"] == "srm"]
    assert "EntryPoint" in plugin["source"]


@pytest.mark.kafka
def test_the_lab_runs_in_an_empty_folder(installed: Install, tmp_path: Path) -> None:
    srm = installed("lab") / "srm"
    (tmp_path / "empty").mkdir()
    home = ("--home", tmp_path / "stack")
    try:
        up = run(srm, "stack", "up", "--kafka-only", *home, cwd=tmp_path / "empty")
        assert "ready" in up.stdout + up.stderr
    finally:
        run(srm, "stack", "down", *home, cwd=tmp_path / "empty")
