"""The Spark application: a Python worker is killed, then the driver; SIGTERM ends all of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest
from tests.faults.application import START_S, Application, load
from tests.waiting import eventually

from srm.config.loader import load_config
from srm.domain.names.topics import Flow
from srm.engine.flows import supervision
from srm.wiring import open_state_topics
from srm_lab.processes import slot_workers
from srm_lab.stack.kafka import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.faults, pytest.mark.timeout(1500)]

END_S = 180.0  # on a busy machine; a quiet one needs about 3


def test_workers_and_driver_killed_in_mid_copy_lose_and_repeat_nothing(
    clusters: Mapping[str, KafkaBroker], tmp_path: Path
) -> None:
    application = Application(clusters, tmp_path)

    with load(application):
        with application.running() as driver:
            application.grows(500)
            victims = slot_workers(driver)
            for victim in victims:
                victim.kill()
            application.grows(2000)
            heirs = slot_workers(driver)
            everything = [driver, *driver.children(recursive=True)]
            driver.terminate()
            code = driver.wait(END_S)
            _, left = psutil.wait_procs(everything, timeout=END_S)
        assert victims, "no Python worker found"
        assert not {p.pid for p in victims} & {p.pid for p in heirs}
        assert (code, left) == (0, []), "SIGTERM ends everything, cleanly"

        with application.running():
            application.grows(2000)
            # Leaving the block kills the driver, and the JVM with it, in mid copy.
    with application.running():
        eventually(application.is_equal, "source and target are equal", START_S)


def test_a_request_ends_the_whole_application_which_says_so_when_its_slots_have_stopped(
    clusters: Mapping[str, KafkaBroker], tmp_path: Path
) -> None:
    """One flow is asked, as the target of the other may not answer: both are ended."""
    application = Application(clusters, tmp_path)

    with load(application):
        with application.running() as driver:
            application.grows(500)
            everything = [driver, *driver.children(recursive=True)]
            config, flow = load_config(application.config), Flow.parse(application.flows[0])
            with open_state_topics(config, [flow]) as topics:
                [answer] = supervision.request_action(topics, "stop", "test", 0, wait_s=END_S)
            at_the_end = application.copied()
            code = driver.wait(END_S)
            _, left = psutil.wait_procs(everything, timeout=END_S)
        assert answer.outcome == "ended"
        assert (code, left) == (0, [])
        assert application.copied() == at_the_end, "its last heartbeat came after its slots"
        with open_state_topics(config, config.flows) as topics:
            assert all(signs and signs.has_ended for signs in supervision.look(topics).values())

        with application.running():  # the request is older than this one
            application.grows(500)
    with application.running():
        eventually(application.is_equal, "source and target are equal", START_S)
