"""Which PySpark the workers import."""

from __future__ import annotations

from pathlib import Path

from srm.spark.worker_daemon import without_zipped_twin


def test_a_zip_inside_an_installed_pyspark_is_left_out_and_no_other(tmp_path: Path) -> None:
    installed = tmp_path / "site-packages"
    twins = [str(installed / "pyspark/python/lib" / name) for name in ("pyspark.zip", "py4j.zip")]
    (installed / "pyspark").mkdir(parents=True)
    others = ["/opt/spark/python/lib/pyspark.zip", str(tmp_path / "jobs.zip"), str(installed)]

    assert without_zipped_twin([*twins, *others]) == others


def test_without_an_installed_pyspark_the_zips_stay(tmp_path: Path) -> None:
    path = [str(tmp_path / "spark/python/lib/pyspark.zip"), str(tmp_path)]

    assert without_zipped_twin(path) == path
