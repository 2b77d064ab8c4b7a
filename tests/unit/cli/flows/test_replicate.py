from __future__ import annotations

import json
import threading

import pytest
from rich.console import Console

from srm.cli.flows import replicator
from srm.cli.flows.replicator import FlowLine, Rates, _write, overview, plain
from srm.domain.flow_state.replication_records import PartitionStatus, parse_duties
from srm.errors import UsageError
from srm.replication.driver.state_book import FlowProgress


def progress(records: int = 0, transferred: int = 0, **changes: object) -> FlowProgress:
    values = {
        "flow": "P->B",
        "topics": 2,
        "partitions": 8,
        "reported": 8,
        "lag": 1234,
        "records": records,
        "bytes": transferred,
        "slots_alive": 1,
        "slots": 2,
        **changes,
    }
    return FlowProgress(**values)


def test_rates_are_means_since_the_line_before():
    now = [100.0]
    rates = Rates(lambda: now[0])
    now[0] = 105.0
    rates.lines((progress(50_000, 10_000_000),))
    now[0] = 110.0

    (line,) = rates.lines((progress(150_000, 35_000_000),))

    assert (line.seconds, line.records_per_s, line.bytes_per_s) == (10.0, 20_000.0, 5_000_000.0)


def test_a_flow_that_starts_again_counts_from_zero_and_has_no_negative_rate():
    now = [100.0]
    rates = Rates(lambda: now[0])
    rates.lines((progress(50_000, 10_000_000),))
    now[0] = 110.0

    (line,) = rates.lines((progress(1_000, 200_000),))

    assert (line.records_per_s, line.bytes_per_s) == (100.0, 20_000.0)


def test_the_plain_line_says_what_an_operator_looks_for():
    line = FlowLine(progress(7_000_000), 15.0, 20_000.0, 5_000_000.0)

    text = plain(line)

    for part in ("P->B", "20,000 rec/s", "5.0 MB/s", "lag 1,234", "partitions 8/8", "slots 1/2"):
        assert part in text
    assert "STOPPED" not in text


def test_duties_of_something_else_are_named_and_a_misspelt_one_is_refused():
    assert parse_duties(" topics,group-offsets ") == {"topics", "group-offsets"}
    assert parse_duties("") == frozenset()
    with pytest.raises(UsageError, match="groups is not one of checkpoints, group-offsets, topics"):
        parse_duties("groups,topics")


def test_what_keeps_a_flow_from_running_is_seen_in_both_views():
    line = FlowLine(progress(trouble="C does not answer"), 15.0, 0.0, 0.0)
    console = Console(record=True, width=120)

    console.print(overview([line]))

    assert plain(line).endswith("TROUBLE: C does not answer")
    assert "P->B: C does not answer" in console.export_text()


def test_stopped_partitions_are_seen_in_both_views():
    stopped = (PartitionStatus("orders", 3, "stopped", "MESSAGE_TOO_LARGE"),)
    line = FlowLine(progress(stopped=stopped), 15.0, 0.0, 0.0)
    console = Console(record=True, width=120)

    console.print(overview([line]))

    assert "STOPPED 1 (orders-3: MESSAGE_TOO_LARGE)" in plain(line)
    assert "orders-3: MESSAGE_TOO_LARGE" in console.export_text()


def test_lines_without_a_terminal_begin_with_the_first_slot_and_say_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicator, "LINE_EVERY_S", 0.01)
    empty = progress(slots_alive=0)  # with the positions of an earlier run
    looks, seen = iter([empty, empty, progress(70)]), threading.Event()

    def look() -> tuple[FlowProgress, ...]:
        found = next(looks, None)
        if found is None:
            seen.set()
        return (found or progress(70),)

    with replicator.replication_view(look, as_json=False):
        assert seen.wait(30)

    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["starting Spark and the slots", "P->B is ready"]
    assert "copied 70" in lines[2]
    assert lines[-1] == "the replicator has ended"


def _shown(width: int, *flows: FlowProgress) -> str:
    console = Console(record=True, width=width)
    console.print(overview([FlowLine(each, 15.0, 123_456.0, 7e6) for each in flows]))
    return console.export_text()


@pytest.mark.parametrize("width", [50, 60, 80, 100, 200])
def test_a_narrow_terminal_cuts_no_number(width: int) -> None:
    text = _shown(width, progress(lag=1_234_567), progress(flow="primary-eu-west->backup-eu-north"))

    assert "123,456" in text
    assert "1,234,567" in text
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width


def test_of_many_stopped_partitions_some_are_named_and_the_others_counted() -> None:
    stopped = tuple(PartitionStatus("orders", n, "stopped", "not allowed") for n in range(5))

    text = _shown(80, progress(stopped=stopped), progress(flow="B->P"))

    assert text.count("not allowed") == 3
    assert "P->B orders-2: not allowed" in text
    assert "P->B and 2 more" in text


def test_before_the_first_report_there_is_an_empty_view() -> None:
    console = Console(record=True, width=80)

    console.print(overview([]))

    assert console.export_text().strip() == ""


def test_json_is_one_object_per_flow_and_line(capsys):
    _write([FlowLine(progress(10), 5.0, 2.0, 0.0)], as_json=True)

    (line,) = capsys.readouterr().out.splitlines()
    decoded = json.loads(line)
    assert (decoded["flow"], decoded["records"], decoded["records_per_s"]) == ("P->B", 10, 2.0)
    assert "progress" not in decoded
