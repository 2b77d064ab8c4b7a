"""Commands of the package ``srm_lab``, found by their entry points."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Final

import typer

from srm.errors import UsageError

GROUP: Final = "srm.commands"
"""Group of entry points: each names a function that adds its command to the application."""

_EXPECTED: Final = {
    "demo": "The main job end to end, with a proof that nothing was lost.",
    "stack": "Embedded Kafka clusters, Airflow and Spark.",
}


def add_lab(app: typer.Typer) -> None:
    """Add the commands ``demo`` and ``stack``; where they are not installed, they say so."""
    found = {point.name: point for point in entry_points(group=GROUP)}
    for name, summary in _EXPECTED.items():
        if name in found:
            found[name].load()(app)
        else:
            _add_missing(app, name, summary)


def _add_missing(app: typer.Typer, name: str, summary: str) -> None:
    settings = {"ignore_unknown_options": True, "allow_extra_args": True}

    @app.command(name, help=f"{summary} Not installed.", context_settings=settings)
    def missing(_context: typer.Context) -> None:
        raise UsageError(
            f"srm {name} needs the package srm_lab, which is not installed here",
            "install srm from a wheel or a checkout that has src/srm_lab",
        )
