"""Which files are expected as DAGs, and what the schema of the database depends on."""

from __future__ import annotations

from pathlib import Path

from srm_lab.stack.airflow import dag_files, schema_version
from srm_lab.stack.spark import check_spark


def test_only_files_that_speak_of_airflow_and_dags_are_waited_for(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.py").write_text("from airflow.sdk import DAG\n")
    (tmp_path / "sub" / "b.py").write_text("from airflow.sdk import dag\n")
    (tmp_path / "names.py").write_text("FLOW = 'P->B'\n")
    (tmp_path / "notes.txt").write_text("airflow dag")

    assert dag_files(tmp_path) == {"a.py", "sub/b.py"}


def test_a_project_without_dags_expects_none(tmp_path: Path) -> None:
    assert dag_files(tmp_path / "dags") == set()


def test_the_schema_version_names_airflow_and_does_not_change_by_itself() -> None:
    assert schema_version().startswith("3.")
    assert schema_version() == schema_version()


def test_the_installed_spark_is_whole() -> None:
    spark = check_spark()

    assert spark.version == "4.2.0"
    assert (spark.home / "bin" / "spark-submit").is_file()
