"""What is to be done, as words or as a command."""

from __future__ import annotations

import pytest

from srm.domain.flow_state.replication_records import PartitionStatus
from srm.domain.names.topics import Flow
from srm.domain.text.amount import is_command, set_key
from srm.errors import message


@pytest.mark.parametrize(
    ("action", "is_one"),
    [
        ("srm replicator restart --flow 'P->B'", True),
        ("srm-control topics --source P --target B --add Orders", True),
        ("set P->B.enabled=true", False),
        ("grant Read on topic srm to User:srm", False),
        ("srm.properties has to name it", False),
        ("", False),
    ],
)
def test_only_what_can_be_run_as_it_stands_is_a_command(action: str, is_one: bool) -> None:
    assert is_command(action) is is_one


def test_a_setting_is_said_with_its_key_its_file_and_what_makes_it_count() -> None:
    assert set_key(Flow("P", "B"), "data.loss.policy", "continue") == (
        "set P->B.data.loss.policy = continue in srm.properties, "
        "then run srm replicator restart --flow 'P->B'"
    )


def test_a_status_tells_what_happened_without_what_to_do() -> None:
    status = PartitionStatus("T", 0, "stopped", message("no right", "grant it"), action="grant it")

    assert status.what == "no right"
    assert PartitionStatus("T", 0, "stopped", "no right; grant it").what == "no right; grant it"
