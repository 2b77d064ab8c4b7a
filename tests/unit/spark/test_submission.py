"""What spark-submit is given for each kind of Spark."""

from __future__ import annotations

import sys

import pytest

from srm.errors import ConfigError
from srm.spark.submission import Submission, submission

CONFIG = "/etc/srm/srm.properties"
ARGUMENTS = ("--config", CONFIG, "--flow", "P->B")
SHIPPED = ("--config", "srm.properties", "--flow", "P->B")
K8S = "k8s://https://kubernetes.default.svc"
IMAGE = {"spark.kubernetes.container.image": "registry.example.com/srm:1"}


def given(spark: dict[str, str], master: str, mode: str | None = None) -> Submission:
    return submission(spark, master, mode, CONFIG, ARGUMENTS)


def test_settings_files_and_archives_are_given_as_spark_submit_takes_them() -> None:
    spark = {
        "spark.executor.memory": "512m",
        "spark.files": "/etc/srm/ca.pem",
        "spark.archives": "/srv/environment.tar.gz#environment",
    }

    assert given(spark, "spark://m:7077") == Submission(
        {"spark.executor.memory": "512m"},
        "/etc/srm/ca.pem",
        "/srv/environment.tar.gz#environment",
        ARGUMENTS,
    )


@pytest.mark.parametrize("master", ["local[4]", "spark://m:7077", "yarn"])
def test_a_driver_on_this_machine_reads_the_file_where_it_is(master: str) -> None:
    assert given({}, master, "client") == Submission({}, None, None, ARGUMENTS, "client")


def test_a_local_spark_needs_neither_files_nor_another_python() -> None:
    workers = {"spark.archives": "e.tar.gz#e", "spark.pyspark.python": "./e/bin/python"}
    spark = {**workers, "spark.files": "/etc/srm/ca.pem", "spark.driver.memory": "1g"}

    assert given(spark, "local[4]") == Submission(
        {"spark.driver.memory": "1g"}, None, None, ARGUMENTS
    )


def test_a_local_driver_is_on_this_machine_whatever_the_deploy_mode() -> None:
    made = given({}, "local[4]", "cluster")

    assert (made.arguments, made.in_cluster) == (ARGUMENTS, False)


@pytest.mark.parametrize(("master", "spark"), [("yarn", {}), (K8S, IMAGE)])
def test_the_file_travels_to_a_driver_elsewhere_which_finds_it_by_its_base_name(
    master: str, spark: dict[str, str]
) -> None:
    made = given({**spark, "spark.files": "/etc/srm/ca.pem"}, master, "cluster")

    assert (made.files, made.arguments) == (f"/etc/srm/ca.pem,{CONFIG}", SHIPPED)


@pytest.mark.parametrize(
    "mount",
    [
        "spark.kubernetes.driver.secrets.srm-config",
        "spark.kubernetes.driver.volumes.persistentVolumeClaim.srm.mount.path",
    ],
)
def test_a_file_that_is_mounted_into_the_driver_stays_where_it_is(mount: str) -> None:
    made = given({**IMAGE, mount: "/etc/srm"}, K8S, "cluster")

    assert (made.files, made.arguments) == (None, ARGUMENTS)


def test_the_deploy_mode_of_the_connection_wins_over_that_of_the_file() -> None:
    spark = {"spark.submit.deployMode": "cluster", "spark.master": "local[9]"}

    made = given(spark, "yarn")

    assert (made.arguments, made.deploy_mode, made.in_cluster) == (SHIPPED, "cluster", True)
    assert given(spark, "yarn", "client") == Submission({}, None, None, ARGUMENTS, "client")


def test_python_of_an_archive_is_for_executors_alone_where_the_driver_is_here() -> None:
    spark = {"spark.pyspark.python": "./environment/bin/python"}

    assert given(spark, "yarn").conf == {**spark, "spark.pyspark.driver.python": sys.executable}
    assert given(spark, "yarn", "cluster").conf == spark
    absolute = {"spark.pyspark.python": "/opt/venv/bin/python"}
    assert given(absolute, "yarn").conf == absolute


@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_kubernetes_without_an_image_is_refused_before_anything_is_submitted(mode: str) -> None:
    wanted = rf"^{CONFIG}: Spark master {K8S} has no image: set spark.kubernetes.container.image$"
    with pytest.raises(ConfigError, match=wanted):
        given({"spark.kubernetes.driver.container.image": "srm:1"}, K8S, mode)


def test_images_of_driver_and_executors_do_as_well() -> None:
    executor = {"spark.kubernetes.executor.container.image": "srm:1"}
    driver = {"spark.kubernetes.driver.container.image": "srm:1"}

    assert given(executor, K8S, "client").conf == executor
    assert given({**driver, **executor}, K8S, "cluster").conf == {**driver, **executor}
