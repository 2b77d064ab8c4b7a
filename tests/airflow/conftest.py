"""A temporary Airflow: its home and settings exist before anything imports Airflow."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.airflow.copies import Site, copied_site

from srm.stack.airflow_env import airflow_environment
from srm.stack.kafka import KafkaBroker

PROJECT = Path(__file__).resolve().parents[2]
HOME = Path(tempfile.mkdtemp(prefix="srm-airflow-test-"))
CONFIG = HOME / "srm.properties"
CONFIG.write_text(
    """\
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
)
ENVIRONMENT = airflow_environment(HOME / "airflow", PROJECT, 1, CONFIG)
os.environ.update({k: v for k, v in ENVIRONMENT.items() if k.startswith("AIRFLOW")})
os.environ["AIRFLOW__CORE__UNIT_TEST_MODE"] = "True"
# The first file of DAGs imports half of Airflow, on a busy machine for longer than 30 s.
os.environ["AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT"] = "300"
# As Airflow does in its own processes.
sys.path.append(str(PROJECT / "plugins"))


@pytest.fixture(scope="module", autouse=True)
def srm_environment() -> Iterator[None]:
    """Set what is not Airflow's own only while these tests run: others look at it too."""
    with pytest.MonkeyPatch.context() as patch:
        for key, value in ENVIRONMENT.items():
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
