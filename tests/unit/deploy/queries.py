"""What alert rules and dashboards ask Prometheus for, and the names in it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[3] / "deploy"
RULES = DEPLOY / "prometheus" / "srm-alerts.yaml"
DASHBOARD = DEPLOY / "grafana" / "srm.json"

_NAME = re.compile(r"\b(?:srm|process)_\w+")
_OF_A_HISTOGRAM = re.compile(r"_(?:bucket|sum|count)$")


def alerts() -> list[dict[str, Any]]:
    """Return all rules."""
    document = yaml.safe_load(RULES.read_text())
    return [rule for group in document["groups"] for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    """Return the dashboard."""
    found: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return found


def panels() -> list[dict[str, Any]]:
    """Return all panels that show something."""
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def panel_queries() -> Iterator[str]:
    """Yield what panels ask for, with variables replaced as Grafana does."""
    for panel in panels():
        for target in panel["targets"]:
            query = target["expr"].replace("$__rate_interval", "1m")
            yield re.sub(r"\$\w+", ".*", query)


def names_in(query: str) -> set[str]:
    """Return the metrics that a query names; a part of a histogram counts as the histogram."""
    without_strings = re.sub(r'"[^"]*"', "", query)
    return {_OF_A_HISTOGRAM.sub("", name) for name in _NAME.findall(without_strings)}
