"""One Spark session for all Spark tests: starting one costs more than any test here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from srm.spark.session import spark_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with spark_session("srm-tests", "local[2]", {"spark.sql.shuffle.partitions": "2"}) as session:
        yield session
