"""The reference of the client is what the docstrings say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import srm.client
from srm_lab.docs.client import render

PAGE = Path(__file__).parents[4] / "docs" / "client-reference.md"


def test_the_page_is_what_the_docstrings_say() -> None:
    """Run ``python -m srm_lab.docs.client`` after a change of a docstring."""
    assert PAGE.read_text("utf-8") == render()


def test_every_name_of_the_package_is_documented_and_imports() -> None:
    page = render()

    assert [name for name in srm.client.__all__ if f"## {name}\n" not in page] == []
    assert [name for name in srm.client.__all__ if getattr(srm.client, name).__name__ != name] == []


def test_a_consumer_loads_no_producer() -> None:
    program = (
        "import sys; from srm.client import FailoverConsumer;"
        "sys.exit('srm.client.producer' in sys.modules or 'srm.client.aio' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
