"""The schema and the page of a report say what its types say."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from tests.unit.domain.moves.report.reporting import DISASTER, REPORT, reports

from srm.domain.moves.report import SCHEMA, MoveReport
from srm_lab.docs.report import render

DOCS = Path(__file__).parents[5] / "docs"
PUBLISHED = json.loads((DOCS / "report.schema.json").read_text("utf-8"))

VALIDATOR = jsonschema.Draft202012Validator(PUBLISHED)


def names(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        for key, value in part.items():
            if key == "properties":
                yield from value
            yield from names(value)
    elif isinstance(part, list):
        for item in part:
            yield from names(item)


def test_the_published_schema_is_that_of_the_types() -> None:
    """Run ``python -m srm_lab.docs.report`` after a change of a type."""
    assert (DOCS / "report.schema.json").read_text("utf-8") == render()
    jsonschema.Draft202012Validator.check_schema(PUBLISHED)


@given(reports)
@settings(max_examples=25)
def test_every_report_is_valid_by_the_published_schema(report: MoveReport) -> None:
    VALIDATOR.validate(json.loads(report.value()))


def test_the_report_of_a_disaster_is_valid_too() -> None:
    VALIDATOR.validate(json.loads(DISASTER.value()))


def test_a_report_that_is_none_is_invalid() -> None:
    fields = json.loads(REPORT.value())
    for change in ({"schema": "srm.move-report/2"}, {"revision": "2"}, {"groups": [1]}):
        with pytest.raises(jsonschema.ValidationError):
            VALIDATOR.validate({**fields, **change})


def test_every_field_is_explained() -> None:
    page = (DOCS / "formats.md").read_text("utf-8")
    explained = set(re.findall(r"`([a-z_0-9]+)`", page))

    assert set(names(PUBLISHED)) - explained == set()


def test_a_report_says_by_which_version_of_the_schema_it_is_written() -> None:
    assert json.loads(REPORT.value())["schema"] == SCHEMA == PUBLISHED["$id"]
    assert replace(REPORT).schema == SCHEMA
