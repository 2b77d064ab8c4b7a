"""A program is where its routes want it, and nowhere else."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import psutil
from tests.unit.follow.following import GROUP, PRODUCER, Running
from tests.waiting import DEADLINE_S, eventually

from srm.follow.program import Restarts, Stopping
from srm.follow.supervisor import MembersLook
from srm.follow.values import ProgramSettings, Template

SUBJECT = "group:audit"
TOPIC = "topic:Payments"

# Writes down each start and each end in order: a line with the cluster, the topics, and its pid.
TELL = """
sleep 1000 &
trap 'echo "end $SRM_CLUSTER" >> "$0"; kill $!; exit 0' TERM
echo "start $SRM_CLUSTER $SRM_BOOTSTRAP_SERVERS $SRM_TOPICS $$" >> "$0"
wait
"""


def telling(home: Path) -> list[str]:
    return ["sh", "-c", TELL, str(home / "told")]


def told(home: Path) -> list[str]:
    file = home / "told"
    return [line.rpartition(" ")[0] if "start" in line else line for line in _lines(file)]


def pids(home: Path) -> list[int]:
    return [int(line.split()[-1]) for line in _lines(home / "told") if "start" in line]


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def test_a_program_is_ended_at_hold_and_started_where_go_says(tmp_path: Path) -> None:
    on_p, on_b = (
        "start P p1:9092 Payments,B.Payments",
        "start B b1:9092 Payments,P.Payments",
    )
    with Running(tmp_path, telling(tmp_path)) as running:
        eventually(lambda: told(tmp_path) == [on_p], "it runs on P")
        running.routes.set(SUBJECT, 7, "P", "hold")
        eventually(lambda: running.routes.said(SUBJECT, "held", 7), "acknowledged")
        assert told(tmp_path) == [on_p, "end P"]
        running.routes.set(SUBJECT, 7, "B", "go")
        eventually(lambda: told(tmp_path)[2:] == [on_b], "it runs on B")
        assert not running.routes.said(SUBJECT, "resumed", 7)
        running.members.at["B"] = MembersLook("B", own=("me@/10.0.0.1",))
        eventually(lambda: running.routes.said(SUBJECT, "resumed", 7), "counted")
        running.end()
    assert told(tmp_path)[3:] == ["end B"]
    assert {ack.subject for ack in running.routes.withdrawn} == {SUBJECT}


def test_a_released_hold_starts_it_again_where_it_was(tmp_path: Path) -> None:
    with Running(tmp_path, telling(tmp_path)) as running:
        eventually(lambda: len(told(tmp_path)) == 1, "it runs")
        running.routes.set(SUBJECT, 7, "P", "hold")
        eventually(lambda: running.routes.said(SUBJECT, "held", 7), "acknowledged")
        running.members.at["P"] = MembersLook("P", own=("me@/10.0.0.1",))
        running.routes.set(SUBJECT, 7, "P", "go")
        eventually(lambda: len(told(tmp_path)) == 3, "it runs again")
        eventually(lambda: running.routes.said(SUBJECT, "resumed", 7), "counted")
        running.end()
    assert [line.split()[1] for line in told(tmp_path)] == ["P", "P", "P", "P"]


def test_it_is_announced_before_the_program_has_joined_but_not_as_arrived(tmp_path: Path) -> None:
    """A plan counts it as a follower; the report of a move that is under way does not."""
    running = Running(tmp_path, telling(tmp_path))
    running.routes.set(SUBJECT, 9, "B", "go")
    with running:
        eventually(lambda: running.routes.acks, "announced")
        eventually(lambda: told(tmp_path), "started")
        assert {(ack.generation, ack.state) for ack in running.routes.acks} == {(0, "resumed")}


def test_a_hold_is_not_acknowledged_while_the_broker_shows_a_member_of_the_program(
    tmp_path: Path,
) -> None:
    with Running(tmp_path, telling(tmp_path)) as running:
        running.members.at["P"] = MembersLook("P", own=("me@/10.0.0.1",))
        eventually(lambda: running.members.looks and told(tmp_path), "it runs")
        running.routes.set(SUBJECT, 7, "P", "hold")
        eventually(lambda: told(tmp_path)[1:] == ["end P"], "it has ended")
        looks = running.members.looks
        eventually(lambda: running.members.looks > looks + 2, "looked at again")
        assert not running.routes.said(SUBJECT, "held", 7)
        running.members.at["P"] = MembersLook("P", others=("somebody@/10.0.0.2",))
        eventually(lambda: running.routes.said(SUBJECT, "held", 7), "others are not waited for")


def test_what_was_seen_before_the_program_had_ended_says_nothing_of_what_it_left(
    tmp_path: Path,
) -> None:
    with Running(tmp_path, telling(tmp_path)) as running:
        running.members.answers = False
        eventually(lambda: running.members.looks and told(tmp_path), "asked while it joins")
        running.routes.set(SUBJECT, 7, "P", "hold")
        eventually(lambda: told(tmp_path)[1:] == ["end P"], "it has ended")
        eventually(lambda: running.supervisor._run is None, "and that is known")
        running.members.answers = True
        running.members.at["P"] = MembersLook("P", own=("me@/10.0.0.1",))
        running.members.report(MembersLook("P"))
        looks = running.members.looks
        eventually(lambda: running.members.looks > looks + 1, "looked at again")
        assert not running.routes.said(SUBJECT, "held", 7)


def test_of_a_program_that_goes_by_another_name_every_member_may_be_one(tmp_path: Path) -> None:
    with Running(tmp_path, telling(tmp_path)) as running:
        running.members.at["P"] = MembersLook("P", others=("who@/10.0.0.1",))
        eventually(lambda: running.members.looks and told(tmp_path), "it runs")
        running.routes.set(SUBJECT, 7, "P", "hold")
        eventually(lambda: told(tmp_path)[1:] == ["end P"], "it has ended")
        looks = running.members.looks
        eventually(lambda: running.members.looks > looks + 2, "looked at again")
        assert not running.routes.said(SUBJECT, "held", 7)
        running.members.at["P"] = MembersLook("P")
        eventually(lambda: running.routes.said(SUBJECT, "held", 7), "the group is empty")


def test_a_cluster_that_cannot_be_asked_for_members_keeps_nobody_from_going(tmp_path: Path) -> None:
    with Running(tmp_path, telling(tmp_path)) as running:
        eventually(lambda: told(tmp_path), "it runs")
        running.members.at["P"] = MembersLook("P", error="dead")
        running.routes.set(SUBJECT, 7, "P", "hold")
        eventually(lambda: told(tmp_path)[1:] == ["end P"], "it has ended")
        running.routes.set(SUBJECT, 7, "B", "go")
        eventually(lambda: len(told(tmp_path)) == 3, "it runs on B")
        assert not running.routes.said(SUBJECT, "held", 7)


def test_a_cluster_that_is_given_up_is_left_without_asking_it_and_without_much_patience(
    tmp_path: Path,
) -> None:
    """A program that flushes to a dead cluster waits for nothing; so would its clients' users."""
    stubborn = [
        "sh",
        "-c",
        'trap "" TERM; echo "start $SRM_CLUSTER a b $$" >> "$0"; while :; do sleep 0.1; done',
        str(tmp_path / "told"),
    ]
    stopping = Stopping(grace_s=10 * DEADLINE_S, lost_s=0.3)
    with Running(tmp_path, stubborn, stopping=stopping) as running:
        eventually(lambda: running.members.looks and pids(tmp_path), "it runs")
        running.members.answers = False
        running.routes.set(SUBJECT, 1 << 32, "P", "hold")
        eventually(lambda: running.routes.said(SUBJECT, "held", 1 << 32), "acknowledged")
        running.routes.set(SUBJECT, 1 << 32, "B", "go")
        eventually(lambda: len(pids(tmp_path)) == 2, "it runs on B")
        assert running.members.taken_out == []


def test_a_hold_of_a_living_cluster_that_is_then_given_up_leaves_less_time(tmp_path: Path) -> None:
    stubborn = ["sh", "-c", 'trap "" TERM; echo x >> "$0"; while :; do sleep 0.1; done']
    stopping = Stopping(grace_s=10 * DEADLINE_S, lost_s=0.3)
    command = [*stubborn, str(tmp_path / "told")]
    with Running(tmp_path, command, stopping=stopping) as running:
        eventually(lambda: _lines(tmp_path / "told"), "it runs")
        running.routes.set(SUBJECT, 7, "P", "hold")
        eventually(lambda: running.supervisor._stopping, "it is asked to end")
        running.routes.set(SUBJECT, 1 << 32, "B", "go")
        eventually(lambda: len(_lines(tmp_path / "told")) == 2, "it runs on B")


def test_a_program_is_not_started_into_a_hold(tmp_path: Path) -> None:
    """Its supervisor was killed, say, and started again in the middle of a move."""
    running = Running(tmp_path, telling(tmp_path))
    running.routes.set(SUBJECT, 7, "P", "hold")
    with running:
        eventually(lambda: running.routes.said(SUBJECT, "held", 7), "acknowledged")
        running.routes.set(SUBJECT, 7, "B", "go")
        eventually(lambda: told(tmp_path), "started")
    assert told(tmp_path)[0].startswith("start B")


def test_nothing_is_looked_at_once_a_program_has_arrived(tmp_path: Path) -> None:
    with Running(tmp_path, telling(tmp_path)) as running:
        running.members.at["P"] = MembersLook("P", own=("me@/10.0.0.1",))
        running.routes.set(SUBJECT, 3, "P", "go")
        eventually(lambda: running.routes.said(SUBJECT, "resumed", 3), "arrived")
        looks = running.members.looks
        assert running.supervisor._timeout() is None
        assert running.members.looks == looks


def test_a_producer_is_held_when_the_program_is_gone_and_resumed_when_it_is_started(
    tmp_path: Path,
) -> None:
    with Running(tmp_path, telling(tmp_path), PRODUCER) as running:
        eventually(lambda: told(tmp_path), "it runs")
        running.routes.set(TOPIC, 7, "P", "hold")
        eventually(lambda: running.routes.said(TOPIC, "held", 7), "acknowledged")
        assert told(tmp_path)[1:] == ["end P"]
        running.routes.set(TOPIC, 7, "B", "go")
        eventually(lambda: running.routes.said(TOPIC, "resumed", 7), "counted")
        eventually(lambda: len(told(tmp_path)) == 3, "it runs")
    assert {ack.kind for ack in running.routes.acks} == {"producer"}


def test_a_program_with_topics_on_two_clusters_runs_on_neither(tmp_path: Path) -> None:
    work = ProgramSettings("audit", ("Payments",), ("Invoices",))
    with Running(tmp_path, telling(tmp_path), work) as running:
        eventually(lambda: told(tmp_path), "it runs")
        running.routes.set("topic:Invoices", 7, "B", "go")
        eventually(lambda: told(tmp_path)[1:] == ["end P"], "it has ended")
        running.routes.set(SUBJECT, 8, "B", "go")
        eventually(lambda: len(told(tmp_path)) == 3, "it runs where both are")
    assert told(tmp_path)[2].startswith("start B")


def test_the_exit_code_of_a_program_that_is_done_is_passed_on(tmp_path: Path) -> None:
    with Running(tmp_path, ["sh", "-c", "exit 0"]) as running:
        assert running.ended() == 0
    with Running(tmp_path, ["sh", "-c", "exit 7"], restarts=Restarts("never")) as running:
        assert running.ended() == 7
    assert running.routes.withdrawn


def test_a_program_that_fails_is_started_again_until_the_limit(tmp_path: Path) -> None:
    command = ["sh", "-c", 'echo x >> "$0"; exit 3', str(tmp_path / "told")]
    with Running(tmp_path, command, restarts=Restarts("on-failure", 2)) as running:
        assert running.ended() == 3
    assert _lines(tmp_path / "told") == ["x"] * 3


def test_a_program_that_is_killed_is_started_again(tmp_path: Path) -> None:
    with Running(tmp_path, telling(tmp_path)) as running:
        eventually(lambda: len(pids(tmp_path)) == 1, "it runs")
        psutil.Process(pids(tmp_path)[0]).kill()
        eventually(lambda: len(pids(tmp_path)) == 2, "it runs again")
        assert running.code is None


def test_what_a_dead_run_leaves_in_the_group_is_taken_out_once_and_no_other_run_is_touched(
    tmp_path: Path,
) -> None:
    """So each run is told another client id."""
    command = ["sh", "-c", 'echo "$SRM_CLIENT_ID" >> "$0"; exit 3', str(tmp_path / "told")]
    with Running(tmp_path, command, restarts=Restarts("on-failure", 1)) as running:
        assert running.ended() == 3
    names = [f"srm-follow-test-{tmp_path.name}-{number}" for number in (1, 2)]
    assert _lines(tmp_path / "told") == names
    assert running.members.taken_out == [("P", names[0])]

    with Running(tmp_path, telling(tmp_path)) as running:
        eventually(lambda: running.members.looks and pids(tmp_path), "it runs")
        running.routes.set(SUBJECT, 7, "P", "hold")
        eventually(lambda: running.routes.said(SUBJECT, "held", 7), "acknowledged")
        assert running.members.taken_out == [("P", names[0])]


def test_a_program_that_dies_in_a_hold_stays_dead_until_go(tmp_path: Path) -> None:
    stubborn = [
        "sh",
        "-c",
        'trap "" TERM; echo "start $SRM_CLUSTER a b $$" >> "$0"; while :; do sleep 0.1; done',
        str(tmp_path / "told"),
    ]
    with Running(tmp_path, stubborn) as running:
        eventually(lambda: len(pids(tmp_path)) == 1, "it runs")
        running.routes.set(SUBJECT, 7, "P", "hold")
        psutil.Process(pids(tmp_path)[0]).kill()
        eventually(lambda: running.routes.said(SUBJECT, "held", 7), "acknowledged")
        assert len(pids(tmp_path)) == 1
        running.routes.set(SUBJECT, 7, "B", "go")
        eventually(lambda: len(pids(tmp_path)) == 2, "started")


def test_a_program_that_does_not_end_in_its_time_is_killed_with_all_it_has_started(
    tmp_path: Path,
) -> None:
    """Also what has made itself a session of its own."""
    daemon = "import os, time; os.setsid(); print(os.getpid(), flush=True); time.sleep(1000)"
    script = f"""trap '' TERM
        '{sys.executable}' -c '{daemon}' > "$0.child" &
        echo "start P a b $$" >> "$0"
        while :; do sleep 0.1; done"""
    command = ["sh", "-c", script, str(tmp_path / "told")]
    with Running(tmp_path, command, stopping=Stopping(grace_s=0.3)) as running:
        eventually(lambda: _lines(tmp_path / "told.child") and pids(tmp_path), "it runs")
        children = [int(_lines(tmp_path / "told.child")[0]), *pids(tmp_path)]
        running.routes.set(SUBJECT, 7, "P", "hold")
        eventually(lambda: running.routes.said(SUBJECT, "held", 7), "acknowledged")
        assert not any(map(psutil.pid_exists, children))


def test_a_killed_guard_takes_the_program_and_its_children_with_it(tmp_path: Path) -> None:
    script = 'sleep 1000 & echo "start P a b $!" >> "$0"; echo "start P a b $$" >> "$0"; wait'
    with Running(tmp_path, ["sh", "-c", script, str(tmp_path / "told")]) as running:
        eventually(lambda: len(pids(tmp_path)) == 2, "it runs")
        first = pids(tmp_path)
        psutil.Process(first[1]).parent().kill()  # type: ignore[union-attr]
        eventually(lambda: len(pids(tmp_path)) == 4, "it runs again")
        eventually(lambda: not any(map(alive, first)), "nothing of the first run is left")
        assert running.code is None


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_an_asked_for_end_ends_the_program_in_order_and_passes_its_code_on(tmp_path: Path) -> None:
    command = ["sh", "-c", 'trap "exit 5" TERM; echo x > "$0"; while :; do sleep 0.1; done']
    with Running(tmp_path, [*command, str(tmp_path / "told")]) as running:
        eventually(lambda: _lines(tmp_path / "told"), "it runs")
        running.supervisor.signal(signal.SIGTERM)
        assert running.ended() == 5


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    command = ["sh", "-c", 'trap "" TERM; echo x > "$0"; while :; do sleep 0.1; done']
    with Running(tmp_path, [*command, str(tmp_path / "told")]) as running:
        eventually(lambda: _lines(tmp_path / "told"), "it runs")
        running.supervisor.signal(signal.SIGTERM)
        running.supervisor.signal(signal.SIGTERM)
        assert running.ended() == 128 + signal.SIGKILL


def test_an_asked_for_end_in_a_hold_is_a_good_one(tmp_path: Path) -> None:
    running = Running(tmp_path, telling(tmp_path))
    running.routes.set(SUBJECT, 7, "P", "hold")
    with running:
        eventually(lambda: running.routes.said(SUBJECT, "held", 7), "held")
        running.supervisor.signal(signal.SIGTERM)
        assert running.ended() == 0


def test_other_signals_reach_the_program(tmp_path: Path) -> None:
    script = 'trap "echo hup >> $0" HUP; echo up >> "$0"; while :; do sleep 0.05; done'
    with Running(tmp_path, ["sh", "-c", script, str(tmp_path / "told")]) as running:
        eventually(lambda: _lines(tmp_path / "told") == ["up"], "it runs")
        running.supervisor.signal(signal.SIGHUP)
        eventually(lambda: _lines(tmp_path / "told") == ["up", "hup"], "heard")


def test_a_program_that_does_not_exist_ends_it_as_a_shell_would(tmp_path: Path) -> None:
    with Running(tmp_path, ["no-such-program"]) as running:
        assert running.ended() == 127
    with Running(tmp_path, [str(tmp_path)]) as running:
        assert running.ended() == 126


def test_a_template_is_written_for_the_cluster_in_force_before_each_start(tmp_path: Path) -> None:
    output = tmp_path / "app.conf"
    template = Template("in", "servers={{ bootstrap_servers }}\n", output)
    command = ["sh", "-c", 'cat "$1" >> "$0"; sleep 1000', str(tmp_path / "told"), str(output)]
    with Running(tmp_path, command, GROUP, templates=[template]) as running:
        eventually(lambda: _lines(tmp_path / "told"), "it runs")
        running.routes.set(SUBJECT, 7, "B", "go")
        eventually(lambda: len(_lines(tmp_path / "told")) == 2, "it runs on B")
    assert _lines(tmp_path / "told") == ["servers=p1:9092", "servers=b1:9092"]


def test_a_file_that_cannot_be_written_is_tried_again(tmp_path: Path) -> None:
    """A full disk in the middle of a move must not be the end of the supervisor."""
    folder = tmp_path / "run"
    template = Template("in", "x", folder / "app.conf")
    with Running(tmp_path, telling(tmp_path), templates=[template]) as running:
        eventually(lambda: running.supervisor._restarts.in_a_row, "it cannot start")
        folder.mkdir()
        eventually(lambda: told(tmp_path), "it runs")
