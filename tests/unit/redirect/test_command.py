"""The command, run for real: what it is given, what its exit means, and how it is ended."""

from __future__ import annotations

import json
import os
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Final

import psutil
from tests.cases import ALL_CASES
from tests.unit.redirect.orders import ORDER
from tests.waiting import eventually

from srm.clock import using
from srm.domain.moves.routing import RedirectOrder
from srm.engine.ports import CallResult
from srm.redirect import Command


def run(
    home: Path, program: str, limit_s: float = 60.0, cancelled=None, order: RedirectOrder = ORDER
) -> CallResult:
    script = home / "switch"
    script.write_text(f"#!{sys.executable}\n{program}")
    script.chmod(0o755)
    command = Command([str(script), "--now"], limit_s, grace_s=0.3)
    return command.call(order, cancelled or threading.Event())


def test_a_command_is_started_however_many_groups_move(tmp_path):
    """No program can be started with a variable of 128 KiB: such a list is in the order alone."""
    names = tuple(f"a-group-with-a-long-name-{number:05}" for number in range(10_000))

    answer = run(
        tmp_path,
        """
import json, os
print("SRM_GROUPS" in os.environ, len(json.load(open(os.environ["SRM_ORDER_FILE"]))["groups"]))
""",
        order=replace(ORDER, groups=names),
    )

    assert answer == CallResult(done=True, said="switch exited with 0: False 10000")


FOREIGN: Final = {"SRM_TIMEOUT", ALL_CASES}
"""Variables of the test run, which are not those of an order."""


def test_a_command_finds_the_order_in_its_environment_on_its_input_and_in_a_file(tmp_path):
    order = replace(ORDER, groups=("audit", "EU, all"))

    answer = run(
        tmp_path,
        f"""
import json, os, sys
seen = dict(
    arguments=sys.argv[1:],
    environ={{k: v for k, v in os.environ.items() if k.startswith("SRM_") and k not in {FOREIGN}}},
    stdin=json.load(sys.stdin),
    file=json.load(open(os.environ["SRM_ORDER_FILE"])),
)
json.dump(seen, open({str(tmp_path / "seen.json")!r}, "w"))
print("switching")
print("switched 2 records")
""",
        order=order,
    )

    seen = json.loads((tmp_path / "seen.json").read_text())
    assert answer == CallResult(done=True, said="switch exited with 0: switched 2 records")
    assert seen["arguments"] == ["--now"]
    assert seen["stdin"] == seen["file"] == json.loads(order.value())
    environ = seen["environ"]
    assert not Path(environ.pop("SRM_ORDER_FILE")).exists()
    assert environ == {
        "SRM_STEP": "go",
        "SRM_MOVE_ID": "m1",
        "SRM_ATTEMPT": "3",
        "SRM_ORDER": "11",
        "SRM_KEY": "m1/3/go",
        "SRM_OPERATION": "failover",
        "SRM_MODE": "planned",
        "SRM_SOURCE": "P",
        "SRM_SOURCE_SERVERS": "p1:9092",
        "SRM_TARGET": "B",
        "SRM_TARGET_SERVERS": "b1:9092,b2:9092",
        "SRM_TOPICS": '["Payments", "Refunds"]',
        "SRM_GROUPS": '["audit", "EU, all"]',
    }


def test_exit_75_is_tried_again(tmp_path):
    answer = run(
        tmp_path,
        f"""
import pathlib, sys
file = pathlib.Path({str(tmp_path / "count")!r})
count = len(file.read_text()) if file.exists() else 0
file.write_text("x" * (count + 1))
sys.exit(0 if count == 2 else 75)
""",
    )

    assert answer.done
    assert (tmp_path / "count").read_text() == "xxx"


def test_exit_75_for_ever_fails_when_the_time_is_over(tmp_path):
    answer = run(tmp_path, "import sys; sys.exit('later' and 75)", limit_s=0.5)

    assert not answer.done
    assert "exited with 75; tried " in answer.said or "did not end in time" in answer.said


def test_any_other_exit_is_a_refusal(tmp_path):
    answer = run(tmp_path, "import sys; print('no such zone', file=sys.stderr); sys.exit(3)")

    assert answer == CallResult(done=False, said="switch exited with 3: no such zone")


def test_one_that_cannot_be_started_says_so():
    answer = Command(["/nowhere/switch"], 60.0).call(ORDER, threading.Event())

    assert not answer.done
    assert "switch cannot be started: [Errno 2]" in answer.said


CHILD = """
import os, pathlib, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
pathlib.Path({file!r}).write_text(str(child.pid))
time.sleep(600)
"""


def test_one_that_does_not_end_is_killed_with_all_that_it_has_started(tmp_path):
    file = tmp_path / "child"

    with using(lambda: 60.0 if file.exists() and file.read_text() else 0.0):  # it is over then
        answer = run(tmp_path, CHILD.format(file=str(file)), limit_s=60.0)

    assert not answer.done
    assert "did not end in time, it was killed" in answer.said
    child = int(file.read_text())
    eventually(lambda: not _lives(child), "the child is gone")


def test_one_that_is_cancelled_is_killed(tmp_path):
    file, cancelled = tmp_path / "child", threading.Event()

    def cancel() -> None:
        eventually(lambda: file.exists() and file.read_text(), "it runs")
        cancelled.set()

    threading.Thread(target=cancel, daemon=True).start()
    answer = run(tmp_path, CHILD.format(file=str(file)), 600.0, cancelled)

    assert not answer.done
    eventually(lambda: not _lives(int(file.read_text())), "the child is gone")


def test_what_it_leaves_running_in_the_background_does_not_delay_it(tmp_path):
    answer = run(
        tmp_path,
        """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid)
""",
        limit_s=600.0,
    )

    child = int(answer.said.rpartition(" ")[2])
    os.kill(child, 9)
    assert answer.done


def _lives(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_the_example_in_order_runs_repeated_and_higher_orders_but_none_after_a_higher_one(tmp_path):
    example = Path(__file__).parents[3] / "examples" / "redirect" / "in-order.sh"
    done = tmp_path / "done"
    program = ("sh", "-c", f'echo "$SRM_ORDER" >> {done}')
    command = Command([str(example), str(tmp_path / "order"), *program], 60.0)

    answers = [
        command.call(replace(ORDER, order=number), threading.Event()) for number in (9, 9, 11, 10)
    ]

    assert done.read_text().split() == ["9", "9", "11"]
    assert all(answer.done for answer in answers)
    assert answers[-1].said.endswith("order 10 comes late and is ignored")
