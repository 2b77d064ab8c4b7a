"""Entry points of the programs: an interrupt while they are imported leaves no stack trace."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import NoReturn


def srm() -> NoReturn:
    _run("main")


def control() -> NoReturn:
    _run("control_main")


def service() -> NoReturn:
    _run("service_main")


def _run(name: str) -> NoReturn:
    try:
        getattr(import_module("srm.cli.main"), name)()
    except KeyboardInterrupt:
        sys.exit(130)  # srm.errors.INTERRUPTED, of which not even the import may be interrupted
    raise AssertionError("a program ends itself")
