"""A program for spark-submit: what srm's jobs use is used once, so that Java loads its classes."""

from __future__ import annotations

from pyspark.sql import functions as F  # noqa: N812

from srm.spark.session import spark_session


def main() -> None:
    """Run one job of each kind: Python functions, and SQL with an aggregation."""
    with spark_session("srm-classes") as spark:
        spark.sparkContext.parallelize(range(4), 2).map(abs).collect()
        sums = spark.range(8).groupBy((F.col("id") % 2).alias("odd")).agg(F.sum("id"))
        sums.orderBy("odd").collect()


if __name__ == "__main__":
    main()
