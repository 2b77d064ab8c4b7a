"""The folder of a stack: one command at a time, and ports that stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from srm.errors import NotFoundError, StackError
from srm_lab.stack.stack import StackHome


def test_a_second_command_on_the_same_stack_is_refused(tmp_path: Path) -> None:
    with (
        StackHome(tmp_path).lock(),
        pytest.raises(StackError, match="another srm stack command works on"),
        StackHome(tmp_path).lock(),
    ):
        pytest.fail("the lock was given twice")


def test_the_lock_is_free_again_afterwards(tmp_path: Path) -> None:
    with StackHome(tmp_path / "new").lock():
        pass
    with StackHome(tmp_path / "new").lock():
        assert (tmp_path / "new").is_dir()


def test_a_folder_without_a_stack_says_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="start one with 'srm stack up'"):
        StackHome(tmp_path).require()


def test_the_port_of_airflow_is_kept_and_airflow_stays_part_of_the_stack(tmp_path: Path) -> None:
    home = StackHome(tmp_path)
    state = home.state()
    home.remember(state, with_airflow=True)
    home.remember(home.state(), with_airflow=False)

    home.require()
    again = StackHome(tmp_path).state()
    assert again.airflow_port == state.airflow_port
    assert again.with_airflow
