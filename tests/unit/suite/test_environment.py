"""Tests leave the environment of their process as it was."""

from __future__ import annotations

import os


def test_settings_of_the_airflow_of_some_tests_are_not_seen_by_others() -> None:
    """Children inherit them; the import of a test file of Airflow sets them."""
    assert "AIRFLOW__CORE__UNIT_TEST_MODE" not in os.environ
