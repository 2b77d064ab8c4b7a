"""One place says how processes log: as the environment says, else as the configuration does."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from srm import logs
from srm.config.loader import load_config
from srm.errors import ConfigError, UnavailableError

PROPERTIES = """
clusters = P, B
P.bootstrap.servers = 127.0.0.1:1
B.bootstrap.servers = 127.0.0.1:2
"""


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(logs.VARIABLE, raising=False)
    root, srm = logging.getLogger(), logging.getLogger("srm")
    handlers, levels = root.handlers[:], (root.level, srm.level)
    yield
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    srm.setLevel(levels[1])
    logs.prefer("text")


def without_handlers() -> None:
    """Take away those of pytest, which come with the test itself."""
    logging.getLogger().handlers.clear()


def said(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().err.splitlines()


def config(folder: Path, *lines: str) -> Path:
    file = folder / "srm.properties"
    file.write_text(PROPERTIES + "\n".join(lines))
    return file


def test_a_name_in_a_text_begins_no_line_and_tells_a_terminal_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    without_handlers()
    logs.set_up()
    evil = "g\n2026-01-01 00:00:00,000 WARNING srm.service.audit stop by root\x1b[2J\u2028x"
    try:
        int("no\nnumber")
    except ValueError:
        logging.getLogger("srm.x").exception("group %s", evil)

    first, *trace = said(capsys)
    assert first.endswith(
        r"group g\n2026-01-01 00:00:00,000 WARNING srm.service.audit stop by root\x1b[2J\u2028x"
    )
    assert trace[0].startswith("Traceback")


def test_text_is_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    without_handlers()
    logs.set_up(process={"flow": "P->B", "slot": "0"})
    logging.getLogger("srm.x").warning("lost %s", "it")

    [line] = said(capsys)
    assert line.endswith("WARNING srm.x [P->B slot 0] lost it")


def test_json_is_an_object_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    without_handlers()
    monkeypatch.setenv(logs.VARIABLE, "json")
    logs.set_up(srm=logging.INFO, process={"slot": "0"})
    with logs.about(flow="P->B"), logs.about(move="m1"):
        logging.getLogger("srm.x").info("two\nlines of %s", "it")
    logging.getLogger("other").info("less than is logged")
    logging.getLogger("srm.x").info("of nothing")

    first, second = map(json.loads, said(capsys))
    assert datetime.fromisoformat(first.pop("time")).utcoffset() == timedelta(0)
    assert first == {
        "level": "INFO",
        "logger": "srm.x",
        "message": "two\nlines of it",
        "slot": "0",
        "flow": "P->B",
        "move": "m1",
    }
    assert "flow" not in second


def test_json_has_the_stack_trace_in_a_field(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    without_handlers()
    monkeypatch.setenv(logs.VARIABLE, "json")
    logs.set_up()
    try:
        raise ValueError("odd")  # noqa: TRY301 -- to have a trace
    except ValueError:
        logging.getLogger("srm.x").exception("failed")

    [line] = map(json.loads, said(capsys))
    assert line["exception"].startswith("Traceback")
    assert line["exception"].endswith("ValueError: odd")


def test_a_process_logs_as_the_configuration_says_that_it_loads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    without_handlers()
    logs.set_up()
    load_config(config(tmp_path, "log.format = json"))
    logging.getLogger("srm.x").warning("now")

    [line] = said(capsys)
    assert json.loads(line)["message"] == "now"


def test_the_environment_wins_over_the_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    without_handlers()
    monkeypatch.setenv(logs.VARIABLE, "text")
    load_config(config(tmp_path, "log.format = json"))
    logs.set_up()
    logging.getLogger("srm.x").warning("now")

    [line] = said(capsys)
    assert line.endswith("WARNING srm.x now")


def test_a_host_goes_on_logging_in_its_own_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    without_handlers()
    logging.basicConfig(format="host: %(message)s", stream=sys.stderr)
    load_config(config(tmp_path, "log.format = json"))
    logs.set_up()
    logging.getLogger("srm.x").warning("now")

    assert said(capsys) == ["host: now"]


def test_commands_log_as_the_file_says(tmp_path: Path) -> None:
    file = config(tmp_path, "log.format = json")
    program = Path(sys.executable).with_name("srm")

    done = subprocess.run(
        [program, "--debug", "topics", "sync", "--config", file, "--flow", "P->X"],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )

    *logged, message = done.stderr.splitlines()
    assert message.startswith("srm: flow P->X is unknown")
    [line] = map(json.loads, logged)
    assert (line["level"], line["logger"]) == ("DEBUG", "srm.cli.console")
    assert "ConfigError" in line["exception"]


def test_a_failure_is_shown_with_the_age_of_the_look_that_met_it() -> None:
    """It was shown as if of now for 12 s in which the cluster answered and the next look lasted."""
    now = [5.0]
    troubles = logs.Troubles("P->B", lambda: now[0])
    troubles.report("discovery", UnavailableError("connection refused"))
    now[0] = 17.0

    assert troubles.lines == ("discovery: connection refused, 12 s ago",)
    troubles.end("discovery")
    assert troubles.lines == ()


def test_an_outage_has_one_line_when_it_begins_and_one_when_it_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    troubles = logs.Troubles("slot 0")
    for text in ("closed the connection", "connection refused", "not acknowledged in time"):
        troubles.report("report", UnavailableError(text))
    troubles.report("report", ConfigError("the topic is too small"))
    troubles.report("report", ConfigError("the topic is too small"))
    troubles.end("report")
    troubles.end("report")

    assert [one.getMessage() for one in caplog.records] == [
        "slot 0: report fails and is tried again: closed the connection",
        "slot 0: report fails and is tried again: the topic is too small",
        "slot 0: report works again",
    ]
