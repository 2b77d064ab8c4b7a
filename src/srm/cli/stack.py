"""``srm stack``: embedded Kafka clusters, Airflow and Spark, left running to explore."""

from __future__ import annotations

import typer

app = typer.Typer(
    help="Embedded Kafka clusters, Airflow and Spark, left running to explore.",
    no_args_is_help=True,
)


@app.callback()
def stack() -> None:
    """Embedded Kafka clusters, Airflow and Spark, left running to explore."""
