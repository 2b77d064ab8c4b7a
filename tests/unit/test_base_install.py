"""The base install: 16 packages, and nothing that its commands import needs another one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.batches import Record, stored

SOURCE = Path(__file__).parents[2] / "src"
BASE = (
    *("annotated_doc", "annotated_types", "confluent_kafka", "cramjam", "javaproperties"),
    *("markdown_it", "mdurl", "numpy", "pydantic", "pydantic_core", "pygments", "rich"),
    *("shellingham", "typer", "typing_extensions", "typing_inspection"),
)
PACKAGES = (
    *("client", "follow", "redirect", "config", "domain", "engine", "kafka", "pages", "cli"),
    "replication",
)
WITH_AN_EXTRA = ("srm.cli.flows.service",)
"""Commands that import an extra when they are run, and nothing before."""

ALONE = """
import importlib.abc, sys
from importlib.metadata import packages_distributions

ours = {{"srm", "srm_lab", "srm_airflow"}}
others = packages_distributions().keys() - {base!r} - ours - sys.stdlib_module_names

class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in others:
            raise ModuleNotFoundError(f"{{name}} is not in the base install", name=name)

sys.meta_path.insert(0, Refuse())
{work}
"""


def run_alone(work: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process that can import nothing but the base install."""
    code = ALONE.format(base=set(BASE), work=work)
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )


def modules() -> list[str]:
    files = [file for name in PACKAGES for file in (SOURCE / "srm" / name).rglob("*.py")]
    names = [".".join(file.relative_to(SOURCE).with_suffix("").parts) for file in files]
    return ["srm.wiring", *sorted(name.removesuffix(".__init__") for name in names)]


def test_everything_but_spark_and_the_service_is_imported_by_the_base_install() -> None:
    imported = [name for name in modules() if name not in WITH_AN_EXTRA]

    done = run_alone(
        "import importlib\nfor each in sys.argv[1:]: importlib.import_module(each)", *imported
    )

    assert done.returncode == 0, done.stderr


def test_the_base_install_answers_to_help() -> None:
    done = run_alone("from srm.cli.main import main\nmain()", "--help")

    assert done.returncode == 0, done.stderr
    assert "failover" in done.stdout


@pytest.mark.parametrize("codec", range(5))
def test_the_base_install_checks_and_decodes_batches(codec: int) -> None:
    batch = stored([Record(7, 0, b"key", b"value")], codec)
    work = (
        "from srm.replication.batches.batch import batches, verify\n"
        "from srm.replication.batches.records import records_in\n"
        "[batch] = batches(memoryview(bytes.fromhex(sys.argv[1])))\n"
        "verify(batch)\n"
        "print(*((one.offset, one.key, one.value) for one in records_in(batch.view)))"
    )

    done = run_alone(work, batch.hex())

    assert done.stdout.strip() == "(7, b'key', b'value')", done.stderr


def test_an_import_of_another_package_is_refused_here() -> None:
    assert "httpx is not in the base install" in run_alone("import httpx").stderr
