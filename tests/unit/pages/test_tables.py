"""Tables on a terminal that is too narrow for them."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console
from rich.text import Text

from srm.pages.tables import Listing

NAMES = ("Payments-eu", "P.Payments-eu", "P.heartbeats", "caught-up")
WHY = "records 987 to 1955 are gone: the log of the source begins at 1955 (offsets 987 to 1955)"
LOG = "/home/somebody/project/build/demo/stack/logs/airflow-api-server.log"
ADDRESS = "http://localhost:31520"


def topics() -> Listing:
    table = Listing("topic on P", "on B")
    table.add_column("remaining", justify="right")
    table.add_column("state")
    table.add_column("remark")
    table.add_row("heartbeats", "P.heartbeats", "0", "[green]caught-up[/]", "")
    table.add_row("Payments-eu", "P.Payments-eu", "968", Text("stopped"), WHY)
    return table


def components() -> Listing:
    table = Listing("COMPONENT", "STATE", "ADDRESS", "LOG", padding=(0, 3, 0, 0))
    table.add_row("Airflow api-server", "ready", ADDRESS, LOG)
    return table


def lines(table: Listing, width: int) -> list[str]:
    console = Console(width=width, force_terminal=True, color_system=None)
    with console.capture() as captured:
        console.print(table)
    return [line.rstrip() for line in captured.get().splitlines()]


@pytest.mark.parametrize("width", [72, 80, 100, 132, 400])
def test_no_name_path_or_address_is_broken_that_fits_on_a_line(width: int) -> None:
    shown = "\n".join(lines(topics(), width) + lines(components(), width))

    assert [name for name in (*NAMES, *WHY.split(), ADDRESS, LOG) if name not in shown] == []


def test_what_finds_no_room_stands_beneath_its_row_by_its_header() -> None:
    assert lines(components(), 80) == [
        "COMPONENT            STATE   ADDRESS",
        f"Airflow api-server   ready   {ADDRESS}",
        f"    LOG {LOG}",
    ]


def test_prose_is_wrapped_where_there_is_room_for_it_next_to_the_names() -> None:
    shown = lines(topics(), 90)

    assert [line[:11] for line in shown[:3]] == [" topic on P", " heartbeats", " Payments-eu"[:11]]
    assert not any("remark records" in line for line in shown)
    assert len(shown) <= 6


def test_a_name_that_is_longer_than_a_line_is_folded_and_not_cut_off() -> None:
    table = Listing("name", "more")
    table.add_row("n" * 100, "m" * 100)

    shown = "".join(lines(table, 40)).replace(" ", "")

    assert (shown.count("n"), shown.count("m")) == (101, 102)


def test_without_rows_the_headers_are_shown() -> None:
    assert lines(Listing("a name that is long", "another one"), 24)[0].strip() == (
        "a name that is long"
    )


@pytest.mark.parametrize("width", [120, 10_000])
def test_a_very_long_name_is_whole_and_moves_no_numbers_of_other_rows(width: int) -> None:
    """One group id of 249 characters moved the numbers of all groups off the screen."""
    table = Listing("group", "lag", "remark")
    table.add_row("billing", "42", "")
    table.add_row("g" * 249, "7", "caught up")
    table.add_row("audit", "0", "idle")

    shown = lines(table, width)

    assert shown[0].split() == ["group", "lag", "remark"]
    assert (shown[1].split(), shown[-1].split()) == (["billing", "42"], ["audit", "0", "idle"])
    assert all(len(shown[number]) < 40 for number in (0, 1, -1))
    text = "".join(line.strip() for line in shown[2:-1])
    assert text.count("g" * 249) == 1
    assert text.endswith("caught up")


def test_a_long_text_between_columns_pads_no_other_row_of_a_pipe() -> None:
    out, table = StringIO(), Listing("topic", "why", "state")
    table.add_row("a", "short", "stopped")
    table.add_row("b", "a long reason of a broker " * 20, "stopped")
    table.add_row("c", "short, too", "copying")

    Console(file=out, width=10_000).print(table)

    head, first, long, last = out.getvalue().splitlines()
    assert [head.split(), first.split()] == [["topic", "why", "state"], ["a", "short", "stopped"]]
    assert max(map(len, (head, first, last))) < 40
    assert first.index("stopped") == last.index("copying")
    assert long.endswith("stopped")
