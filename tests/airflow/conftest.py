"""A temporary Airflow: its settings are there while its tests are imported, and while they run.

Other tests of the same process, and what they start, see nothing of it.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.airflow.copies import Site, copied_site

from srm_lab.stack.airflow import airflow_environment
from srm_lab.stack.kafka import KafkaBroker

PROJECT = Path(__file__).resolve().parents[2]
CONFIG = """\
clusters = P, B
P.bootstrap.servers = 127.0.0.1:1
B.bootstrap.servers = 127.0.0.1:2
P->B.enabled = true
B->P.enabled = true
topics = Payments.*
groups = .*
sync.group.offsets.enabled = true
reverse.checkpointing.enabled = true
emit.checkpoints.interval.seconds = 17
refresh.topics.interval.seconds = 5
"""
SETTINGS = pytest.StashKey[Mapping[str, str]]()
# As Airflow does in its own processes.
sys.path.append(str(PROJECT / "plugins"))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Import a test file: the first one imports Airflow, which reads its home only then."""
    with airflow_settings(collector.config):
        return (yield)


@pytest.fixture(scope="module", autouse=True)
def srm_environment(pytestconfig: pytest.Config) -> Iterator[None]:
    with airflow_settings(pytestconfig):
        yield


@contextmanager
def airflow_settings(config: pytest.Config) -> Iterator[None]:
    """Set the variables of this process's Airflow; its folder is made for the first file."""
    if SETTINGS not in config.stash:
        home: Path = config._tmp_path_factory.mktemp("airflow")
        file = home / "srm.properties"
        file.write_text(CONFIG)
        config.stash[SETTINGS] = {
            **airflow_environment(home / "airflow", PROJECT, 1, file),
            "AIRFLOW__CORE__UNIT_TEST_MODE": "True",
            # The first file of DAGs imports half of Airflow, which may take longer than 30 s.
            "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "300",
        }
    with pytest.MonkeyPatch.context() as patch:
        for key, value in config.stash[SETTINGS].items():
            patch.setenv(key, value)
        yield


@pytest.fixture(scope="session")
def airflow_db() -> None:
    """Make the metadata database, once."""
    from airflow.utils.db import initdb  # noqa: PLC0415 - reads the settings made above

    initdb()


def listen(made: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the notes that tasks write: there is no web server that would take them."""
    from srm_airflow.rest import AirflowRest  # noqa: PLC0415 - after conftest

    monkeypatch.setattr(AirflowRest, "set_note", lambda _rest, text: made.notes.append(text))


@pytest.fixture
def site(
    clusters: Mapping[str, KafkaBroker],
    airflow_db: None,  # noqa: ARG001
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Site]:
    """Two real clusters with a copied topic; DAGs are built from their configuration."""
    file = tmp_path / "srm.properties"
    monkeypatch.setenv("SRM_CONFIG", str(file))
    with copied_site(clusters, file) as made:
        listen(made, monkeypatch)
        yield made
