"""The image starts any command, and what Spark on Kubernetes names `driver` and `executor`."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.unit.deploy.queries import DEPLOY

SCRIPT = DEPLOY / "docker" / "entrypoint.sh"
EXECUTOR = {
    "SPARK_EXECUTOR_MEMORY": "512m",
    "SPARK_DRIVER_URL": "spark://driver:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "1",
    "SPARK_APPLICATION_ID": "app",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.3",
    "SPARK_EXECUTOR_POD_NAME": "srm-exec-3",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_JAVA_OPT_0": "-Dspark.driver.port=7078",
}


def started(folder: Path, *arguments: str, **environ: str) -> list[str]:
    """Return the command that runs in a container which is started with these arguments."""
    text = SCRIPT.read_text().replace("/opt/spark/work-dir", str(folder))
    script = folder / "entrypoint.sh"
    script.write_text(text.replace("exec /usr/bin/tini -s --", r"printf '%s\n'"))
    done = subprocess.run(
        ["/bin/bash", script, *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={"PATH": "/usr/bin:/bin", "SPARK_HOME": "/spark", **environ},
    )
    return done.stdout.splitlines()


def test_any_command_runs_as_it_is(tmp_path: Path) -> None:
    assert started(tmp_path, "srm", "replicate", "--flow", "P->B") == [
        *("srm", "replicate", "--flow", "P->B")
    ]


def test_a_driver_is_submitted_in_client_mode_with_the_arguments_of_spark(tmp_path: Path) -> None:
    command = started(tmp_path, "driver", "--class", "Main", SPARK_DRIVER_BIND_ADDRESS="10.0.0.2")

    assert command == [
        "/spark/bin/spark-submit",
        *("--conf", "spark.driver.bindAddress=10.0.0.2"),
        *("--conf", "spark.executorEnv.SPARK_DRIVER_POD_IP=10.0.0.2"),
        *("--deploy-mode", "client", "--class", "Main"),
    ]


def test_an_executor_is_described_by_its_environment(tmp_path: Path) -> None:
    command = started(tmp_path, "executor", **EXECUTOR)

    assert command == [
        *("java", "-Dspark.driver.port=7078", "-Xms512m", "-Xmx512m"),
        *("-cp", f":/spark/jars/*:{tmp_path}"),
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
        *("--driver-url", "spark://driver:7078", "--executor-id", "3", "--cores", "1"),
        *("--app-id", "app", "--hostname", "10.0.0.3", "--resourceProfileId", "0"),
        *("--podName", "srm-exec-3"),
    ]
