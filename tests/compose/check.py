"""Runs docker-compose.yaml with podman, and moves a group through Airflow: ``make compose-check``.

No image is pulled. The base images are made here, under the names in the file, from Debian's
packages and Kafka's jars. All of it is below build/compose-check and goes at the end, but the logs.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any, Final

import httpx
import yaml
from tests.compose.podman import CommandError, Podman, run
from tests.waiting import eventually

from srm.errors import SrmError
from srm_lab.demo.airflow_api import AirflowApi
from srm_lab.stack.jars import fetch, jar_folder, locked_jars, maven_url
from srm_lab.stack.process import free_port

logger = logging.getLogger(__name__)

PROJECT: Final = Path(__file__).parents[2]
FOLDER: Final = PROJECT / "build" / "compose-check"
IMAGES: Final = Path(__file__).parent / "images"
PROGRAMS: Final = ("podman", "runc", "mmdebstrap")
DEBIAN: Final = "ca-certificates,python3,python3-pip,python3-venv"
FAILOVER: Final = "srm_failover.P.B"
SLOTS: Final = 4
"""Cores of the Spark worker that the replicator holds: tasks.max of both flows."""
PORTS: Final = {"AIRFLOW": 8080, "SERVICE": 6670, "SPARK": 8081, "KAFKA_P": 19092, "KAFKA_B": 29092}

BUILD_S: Final = 1800.0
HEALTH_S: Final = 600.0
MOVE_S: Final = 900.0
"""Limits for a busy machine of two cores."""


class Check:
    """The stack of docker-compose.yaml, from base images to a finished move."""

    def __init__(self, podman: Podman) -> None:
        self._podman = podman
        self._file = yaml.safe_load((PROJECT / "docker-compose.yaml").read_text())
        self._services: Mapping[str, Any] = {
            name: service
            for name, service in self._file["services"].items()
            if "profiles" not in service
        }
        ports = {name: _port(usual) for name, usual in PORTS.items()}
        self._environ = {f"SRM_PORT_{name}": str(port) for name, port in ports.items()}
        self._airflow = f"http://localhost:{ports['AIRFLOW']}"
        self._spark = f"http://localhost:{ports['SPARK']}"
        self._service = f"http://localhost:{ports['SERVICE']}"

    def make_base_images(self) -> None:
        """Make the images that a registry has elsewhere."""
        debian = self._context("python")
        packages = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={DEBIAN}"]
        run([*packages, "bookworm", debian / "debian.tar"], BUILD_S, self._podman.log)
        # Whatever lets this machine reach the package registries is trusted in the images, too.
        for certificate in Path("/usr/local/share/ca-certificates").glob("*.crt"):
            shutil.copyfile(certificate, debian / certificate.name)
        (debian / "none.crt").touch()
        self._podman.build("docker.io/library/python:3.11-slim-bookworm", debian)
        kafka = self._context("kafka")
        (kafka / "libs").mkdir()
        for jar in fetch(locked_jars(), jar_folder(), maven_url()):
            shutil.copyfile(jar, kafka / "libs" / jar.name)
        self._podman.build(f"docker.io/{self._services['kafka-p']['image']}", kafka)
        postgres = f"docker.io/library/{self._services['postgres']['image']}"
        self._podman.build(postgres, self._context("postgres"))

    def _context(self, name: str) -> Path:
        context = FOLDER / name
        shutil.rmtree(context, ignore_errors=True)
        shutil.copytree(IMAGES / name, context)
        return context

    def start(self) -> None:
        """Build the image and start the services in the order of the file, each when it may.

        Podman 4 runs no health checks by itself, so podman-compose does not wait for them.
        """
        self._compose("build", limit_s=BUILD_S)
        order = TopologicalSorter(
            {name: service.get("depends_on", ()) for name, service in self._services.items()}
        )
        order.prepare()
        while order.is_active():
            ready = order.get_ready()
            self._compose("up", "--detach", "--no-build", "--no-deps", *ready, limit_s=300)
            for name in ready:
                took = eventually(lambda name=name: self.good(name), f"{name} is good", HEALTH_S)
                logger.info("%-22s %s after %.0f s", name, "good", took)
                order.done(name)

    def _compose(self, *words: str, limit_s: float) -> None:
        self._podman.compose(*words, limit_s=limit_s, environ=self._environ)

    def good(self, service: str) -> bool:
        """Return whether a service is healthy, or has ended well where it runs once.

        Raises:
            CommandError: a service that runs once has failed.
        """
        container = f"srm_{service}_1"
        if self._services[service].get("restart") == "no":
            state = self._podman.state(container)
            if state["Status"] == "exited" and state["ExitCode"]:
                raise CommandError(f"{service} ended with exit code {state['ExitCode']}")
            return state["Status"] == "exited"
        try:
            self._podman("healthcheck", "run", container)
        except CommandError:
            return False
        return True

    def flows(self) -> dict[str, str]:
        """Return the state of each flow, as the service's pages show it."""
        with httpx.Client(trust_env=False, timeout=30) as client:
            answer = client.get(f"{self._service}/v2/flows").raise_for_status().json()
            client.get(f"{self._service}/ui").raise_for_status()
        return {f"{one['source']}->{one['target']}": one["state"] for one in answer["items"]}

    def cores_in_use(self) -> int:
        """Return how many cores of the Spark cluster applications hold."""
        with httpx.Client(trust_env=False, timeout=30) as client:
            return int(client.get(f"{self._spark}/json/").raise_for_status().json()["coresused"])

    def move(self) -> None:
        """Move everything from P to B by the DAG, as its form does.

        Raises:
            CommandError: the run failed, or left no note.
        """
        with AirflowApi(self._airflow) as airflow:
            run_id = airflow.trigger(FAILOVER, "compose-check", {"residue_seconds": 0})
            eventually(lambda: airflow.run(FAILOVER, run_id).over, "the move is over", MOVE_S)
            ended = airflow.run(FAILOVER, run_id)
            logger.info("%s: %s, %s", FAILOVER, ended.state, dict(ended.tasks))
            if ended.state != "success":
                raise CommandError(airflow.failure(FAILOVER, run_id))
            [note] = [one["note"] for one in airflow.runs(FAILOVER) if one["dag_run_id"] == run_id]
            if not note:
                raise CommandError("the run has no note")
            logger.info("note: %s", note)

    def clusters(self, application: str) -> list[str]:
        """Return the clusters on which an application worked, one for each of its payments."""
        record = self._podman("exec", f"srm_{application}_1", "cat", "/tmp/record")  # noqa: S108
        return [line.split("\t")[1] for line in record.splitlines()]

    def keep_logs(self) -> None:
        """Write what each container has printed to a file of its own."""
        logs = FOLDER / "logs"
        shutil.rmtree(logs, ignore_errors=True)
        logs.mkdir()
        for service in self._services:
            with contextlib.suppress(CommandError):
                self._podman.keep_log(f"srm_{service}_1", logs / f"{service}.log")


def _port(usual: int) -> int:
    """Return the usual port of a service, or any free one where that is taken."""
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", usual))
        except OSError:
            return free_port()
    return usual


@contextlib.contextmanager
def storage() -> Iterator[Podman]:
    """Give podman an empty storage, and remove all that came into it."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        raise CommandError(
            f"{', '.join(missing)} is missing: apt-get install podman runc netavark aardvark-dns "
            "iptables mmdebstrap"
        )
    FOLDER.mkdir(parents=True, exist_ok=True)
    podman = Podman(FOLDER, PROJECT)
    try:
        yield podman
    finally:
        podman.remove_all()


def main() -> int:
    """Run the check; return the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    began = time.monotonic()
    try:
        with storage() as podman:
            check = Check(podman)
            try:
                _play(check)
            finally:
                check.keep_logs()
    except (AssertionError, CommandError, SrmError, httpx.HTTPError) as error:
        logger.error("compose-check failed: %s; logs are in %s", error, FOLDER)  # noqa: TRY400
        return 1
    logger.info("compose-check passed in %.0f s", time.monotonic() - began)
    return 0


def _play(check: Check) -> None:
    check.make_base_images()
    logger.info("base images made")
    check.start()
    running = {"P->B": "RUNNING", "B->P": "RUNNING"}
    eventually(lambda: check.flows() == running, "both flows are RUNNING", HEALTH_S)
    logger.info("flows: %s", running)
    eventually(lambda: check.cores_in_use() == SLOTS, f"slots hold {SLOTS} cores of the worker")
    check.move()
    for application in ("shop", "ledger"):
        eventually(lambda a=application: check.clusters(a)[-1] == "B", f"{application} is on B")
        worked = check.clusters(application)
        logger.info("%s: %d payments on P, then %d on B", application, *map(worked.count, "PB"))


if __name__ == "__main__":
    sys.exit(main())
