"""docs/monitoring.md has every metric, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from srm.service.prometheus.exposition import DURATION, REQUESTS
from srm.service.prometheus.metric_table import METRICS
from srm_lab.docs.metrics import with_tables

PAGE = Path(__file__).parents[4] / "docs" / "monitoring.md"


def test_every_metric_is_documented() -> None:
    """Run ``python -m srm_lab.docs.metrics`` after a change of the table."""
    page = PAGE.read_text("utf-8")

    assert with_tables(page) == page
    assert set(re.findall(r"^\| `(srm_\w+)` \|", page, re.MULTILINE)) == {
        *METRICS,
        REQUESTS,
        DURATION,
    }


def test_no_metric_is_named_that_does_not_exist() -> None:
    named = set(
        re.findall(
            r"\bsrm_(?:flow|topic|group|move|drill|service)_\w+(?![\w{*.])", PAGE.read_text("utf-8")
        )
    )

    dags = {"srm_group_offset_sync", "srm_topic_sync"}
    known = {*METRICS, REQUESTS, DURATION, *dags}
    assert {name for name in named if not any(one.startswith(name) for one in known)} == set()
