"""Tables that never truncate names and numbers and wrap only prose."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

from rich.console import (
    Console,
    ConsoleOptions,
    ConsoleRenderable,
    Group,
    RenderableType,
    RenderHook,
    RenderResult,
)
from rich.markup import escape
from rich.measure import Measurement
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from srm.domain.text.amount import moment
from srm.logs import printable

MOST_ROWS: Final = 200
"""Rows that a table shows; scripts read --json."""
_PROSE: Final = 30
"""Minimum width of a column with longer cells, which are wrapped between words."""
_NAME: Final = 80
"""A row with a longer name has widths of its own, and moves no numbers of other rows."""
_UNWRAPPED: Final = 1_000
"""Columns of a console that is a file or pipe, at least."""


def exact_time(time_ms: int | None) -> str:
    """Render the timestamp of a record in UTC with milliseconds."""
    if time_ms is None or time_ms < 0:
        return "-"
    return f"{moment(time_ms):%Y-%m-%d %H:%M:%S.%f}"[:-3]


@dataclass(frozen=True)
class Insertion(RenderHook):
    """Inserts words after a pattern in all texts of a console, also in tables."""

    after: re.Pattern[str]
    words: str

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [self._insert(one) for one in renderables]

    def _insert(self, one: Any) -> Any:
        if isinstance(one, str):  # markup, as all texts of cells
            return self.after.sub(lambda found: found[0] + escape(self.words), one)
        if isinstance(one, Text):
            end = one.end
            for found in reversed([*self.after.finditer(one.plain)]):
                one = one[: found.end()].append(self.words).append_text(one[found.end() :])
            one.end = end
        elif isinstance(one, Group):
            return Group(*map(self._insert, one.renderables), fit=one.fit)
        elif isinstance(one, Table):
            for column in one.columns:
                column._cells[:] = map(self._insert, column.cells)  # noqa: SLF001 -- no setter
        return one


_LAYOUT: Final = "\n\t"
"""Characters that are not printable and part of a text."""


class SafeConsole(Console):
    """A console that shows control sequences in names, and sends none to the terminal."""

    def render_str(self, text: str, **settings: Any) -> Text:
        """Return markup as a text, as rich does; escaped here, a cell has its width."""
        return super().render_str(printable(text, _LAYOUT), **settings)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield the parts of what is printed, as rich does."""
        for one in super().render(renderable, options):
            text = one.text if one.control else printable(one.text, _LAYOUT)
            yield one if text is one.text else Segment(text, one.style)


class Listing(Table):
    """A table without lines that wraps prose, and never breaks or cuts a name, path or address.

    Last columns without room go beneath each row, after their header.
    """

    def __init__(self, *headers: str, right: Collection[str] = (), **settings: Any) -> None:
        self._right = right
        super().__init__(*headers, **{"box": None, "header_style": "bold", **settings})

    def add_column(self, header: RenderableType = "", *arguments: Any, **settings: Any) -> None:
        justify = "right" if header in self._right else "left"
        settings = {"overflow": "fold", "justify": justify, **settings}
        super().add_column(header, *arguments, **settings)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        cells = [list(column.cells) for column in self.columns]
        room, wide = options.max_width, options.update(max_width=1_000_000)
        names = [str(column.header) if self.show_header else "" for column in self.columns]
        rows = list(zip(*cells, strict=True))
        sizes = [[Measurement.get(console, wide, cell) for cell in row] for row in (names, *rows)]
        usual = [row for row in sizes if _is_usual(row, room)]
        if len(usual) == len(sizes) and Measurement.get(console, wide, self).maximum <= room:
            yield from _without_padding(super().__rich_console__(console, options))
            return
        padding = self.padding[1] + self.padding[3]
        common = _widths(usual if len(usual) > 1 else sizes, room, padding)
        yield from self._part(console, options, common)
        for row, its in zip(rows, sizes[1:], strict=True):
            widths = common if _is_usual(its, room) else _widths([its], room, padding)
            kept = len(widths)
            yield from self._part(console, options, widths, row[:kept])
            rest = [
                _with_name(console, *one) for one in zip(names[kept:], row[kept:], strict=False)
            ]
            if filled := [one for one in rest if one.plain]:
                yield Padding(Text("  ", overflow="fold").join(filled), (0, 0, 0, 4), expand=False)

    def _part(
        self,
        console: Console,
        options: ConsoleOptions,
        widths: Sequence[int],
        row: Sequence[RenderableType] = (),
    ) -> RenderResult:
        """Render one row, or title and headers without one."""
        part = Table(
            box=None,
            header_style=self.header_style,
            show_header=self.show_header and not row,
            padding=self.padding,
            pad_edge=self.pad_edge,
            title=None if row else self.title,
            title_justify=self.title_justify,
        )
        for column, width in zip(self.columns, widths, strict=False):
            part.add_column(
                column.header,
                width=width,
                justify=column.justify,
                style=column.style,
                overflow="fold",
            )
        if row:
            part.add_row(*row)
        if row or part.show_header or part.title:
            yield from _without_padding(console.render(part, options))


def _is_usual(row: Sequence[Measurement], room: int) -> bool:
    """Return whether other rows can have the widths of a row; nothing wraps prose in a pipe."""
    long = room >= _UNWRAPPED and any(one.maximum > _NAME for one in row[:-1])
    return not long and all(one.minimum <= _NAME for one in row)


def _without_padding(parts: RenderResult) -> RenderResult:
    """Drop the blanks at the ends of lines: a pipe would get each row as long as the longest."""
    line: list[Segment] = []
    for part in parts:
        if not isinstance(part, Segment):
            yield part
            continue
        line.append(part)
        if part.text == "\n":
            while len(line) > 1 and not line[-2].text.strip():
                del line[-2]
            if len(line) > 1:
                line[-2] = line[-2]._replace(text=line[-2].text.rstrip())
            yield from line
            line.clear()
    yield from line


def _widths(rows: Collection[Sequence[Measurement]], room: int, padding: int) -> list[int]:
    """Return the widths of the first columns that fit; prose gets the remaining room."""
    ranges = [
        Measurement(max(one.minimum for one in column), max(one.maximum for one in column))
        for column in zip(*rows, strict=True)
    ]
    least = [max(one.minimum, min(one.maximum, _PROSE)) for one in ranges]
    kept = max(1, sum(end <= room for end in accumulate(one + padding for one in least)))
    widths = [min(one, room - padding) for one in least[:kept]]
    left = room - sum(widths) - padding * kept
    for number, one in enumerate(ranges[:kept]):
        more = max(0, min(one.maximum - widths[number], left))
        widths[number] += more
        left -= more
    return widths


def _with_name(console: Console, name: str, cell: RenderableType) -> Text:
    text = cell if isinstance(cell, Text) else console.render_str(str(cell))
    head = Text.from_markup(f"{name} " if name and text.plain else "", style="dim")
    return Text.assemble(head, text)
