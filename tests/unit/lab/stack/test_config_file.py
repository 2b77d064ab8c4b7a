"""The stack's properties file says what the stack is for, and belongs to the user once written."""

from __future__ import annotations

from pathlib import Path

from srm.config.loader import load_config
from srm.domain.names.topics import Flow
from srm_lab.stack.stack import name_airflow, write_config

ADDRESSES = {"P": "127.0.0.1:20001", "B": "127.0.0.1:20002"}


def test_both_flows_copy_payments_and_carry_progress_both_ways(tmp_path: Path) -> None:
    path = tmp_path / "srm.properties"
    write_config(path, ADDRESSES)

    config = load_config(path)

    assert config.warnings == ()
    assert set(config.flows) == {Flow("P", "B"), Flow("B", "P")}
    assert config.client("P", "admin")["bootstrap.servers"] == ADDRESSES["P"]
    assert config.client("B", "consumer")["bootstrap.servers"] == ADDRESSES["B"]
    back = config.flow(Flow("B", "P"))
    assert back.reverse_checkpointing_enabled
    assert back.reverse_checkpointed_topics == (r"P\.Payments.*",)
    forth = config.flow(Flow("P", "B"))
    assert forth.topics == ("Payments.*",)
    assert forth.sync_group_offsets_enabled
    assert forth.replication_factor == forth.internal_replication_factor == 1


def test_a_file_that_exists_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "srm.properties"
    path.write_text("mine")

    write_config(path, ADDRESSES)

    assert path.read_text() == "mine"


def test_airflow_is_named_once_for_the_links_of_the_pages(tmp_path: Path) -> None:
    path = tmp_path / "srm.properties"
    write_config(path, ADDRESSES)

    name_airflow(path, "http://localhost:1")
    name_airflow(path, "http://localhost:2")

    assert load_config(path).service.airflow_url == "http://localhost:1"
    assert load_config(path).warnings == ()
