from __future__ import annotations

from types import SimpleNamespace

import pytest

from srm.config.loader import load_config
from srm.domain.flow_state.replication_records import DriverRequest
from srm.domain.names.topics import Flow
from srm.errors import ConfigError, SupersededError, UsageError
from srm.spark.replicator import Replicator, _one_line, fitted_master, placement

PROPERTIES = """
clusters = P, B
P.bootstrap.servers = 127.0.0.1:1
B.bootstrap.servers = 127.0.0.1:2
P->B.enabled = true
"""


@pytest.fixture
def config(tmp_path):
    file = tmp_path / "srm.properties"
    file.write_text(PROPERTIES)
    return load_config(file)


@pytest.mark.parametrize(
    ("master", "slots", "fitted"),
    [
        (None, 2, "local[3]"),
        ("local", 1, "local[2]"),
        ("local[2]", 4, "local[5]"),
        ("local[8]", 4, "local[8]"),
        ("local[2,4]", 4, "local[5,4]"),
        ("spark://host:7077", 9, "spark://host:7077"),
        ("yarn", 9, "yarn"),
    ],
)
def test_a_local_master_has_a_core_for_each_slot_and_one_more(master, slots, fitted):
    assert fitted_master(master, slots) == fitted


@pytest.mark.parametrize(
    ("given", "master", "chosen"),
    [
        ({}, "spark://m:7077", {"spark.cores.max": "3"}),
        ({"spark.cores.max": "9"}, "spark://m:7077", {"spark.cores.max": "9"}),
        ({}, "yarn", {"spark.executor.instances": "3"}),
        ({"spark.executor.cores": "2"}, "k8s://https://k", {"spark.executor.instances": "2"}),
        ({"spark.executor.instances": "1"}, "yarn", {"spark.executor.instances": "1"}),
    ],
)
def test_a_cluster_gives_a_core_for_each_slot(given, master, chosen):
    assert placement(given, master, 3) == {"spark.master": master, **chosen}


def test_a_flow_that_is_not_enabled_is_refused_with_the_key_to_set(config):
    disabled = next(flow for flow in config.flow_configs if flow not in config.flows)

    with pytest.raises(ConfigError, match=r"set B->P\.enabled = true"):
        Replicator(config, [disabled])


def test_no_flow_at_all_is_refused(config):
    with pytest.raises(ConfigError, match="none of the flows"):
        Replicator(config, [])
    with pytest.raises(UsageError, match="Spark has no master 'locl'"):
        Replicator(config, config.flows, master="locl")


def test_who_has_stopped_an_application_is_told_in_the_heartbeats_of_all_its_flows(config):
    replicator = Replicator(config, config.flows)
    before = replicator._identity()
    flow = config.flows[0]
    request = DriverRequest("r", "stop", "ada@ops", 5)
    replicator._runs = {
        one: SimpleNamespace(request=obeyed, flow=one, failure=None)
        for one, obeyed in ((flow.reverse, None), (flow, request))
    }

    after = replicator._identity()

    assert (before.stopped_by, after.stopped_by, after.stopped_flow) == ("", "ada@ops", str(flow))
    assert before.started_ms == after.started_ms > 0


def test_the_slots_own_error_is_what_is_said_about_a_job_that_ended():
    text = """An exception was thrown from the Python worker.
Traceback (most recent call last):
  File "slot.py", line 1, in run
srm.errors.UnavailableError: cluster B does not answer
Caused by: org.apache.spark.SparkException: Job aborted"""

    assert _one_line(RuntimeError(text)) == "UnavailableError: cluster B does not answer"


def test_a_job_whose_slot_is_superseded_says_so_to_who_would_submit_it_again(config):
    class Spark:
        def setJobGroup(self, *_: object, **__: object) -> None: ...  # noqa: N802 - as Spark has it

        def parallelize(self, *_: object) -> object:
            return self

        def foreachPartition(self, task: object) -> None:  # noqa: N802
            raise RuntimeError(
                f"Traceback of {task}\nsrm.errors.SupersededError: another drives it\n"
            )

    replicator = Replicator(config, [Flow("P", "B")])
    replicator._spark = Spark()

    with pytest.raises(SupersededError, match="another drives it"):
        replicator._job("slot 0 of P->B", SimpleNamespace(slot="0"))


def test_sparks_last_cause_is_said_about_a_worker_that_was_killed():
    text = (
        "An error occurred while calling o129.collectToPython.\n: org.apache.spark.SparkException:"
        " Job aborted: org.apache.spark.SparkException: Python worker exited unexpectedly "
        "(crashed). Consider setting 'spark.x' to 'true'\n\tat org.apache.spark.Foo"
    )

    assert _one_line(RuntimeError(text)) == "Python worker exited unexpectedly (crashed)."


def test_what_the_file_says_without_effect_is_told_at_the_start(tmp_path, caplog):
    file = tmp_path / "srm.properties"
    file.write_text(PROPERTIES + "P->B.consumer.auto.offset.reset = latest\n")
    config = load_config(file)

    Replicator(config, config.flows)

    assert "P->B.consumer.auto.offset.reset: does not steer the copy: a partition is" in caplog.text
