"""Tables of names and numbers that stay whole: what is too long is folded, and never cut off."""

from __future__ import annotations

from typing import Any

from rich.table import Table


class Listing(Table):
    """A table without lines; its columns fold, unless one is added that says otherwise.

    Rich's own default puts an ellipsis in the place of the end of a name, which nobody can copy.
    """

    def __init__(self, *headers: str, **settings: Any) -> None:
        """Begin with some columns."""
        super().__init__(*headers, **{"box": None, "header_style": "bold", **settings})

    def add_column(self, *arguments: Any, **settings: Any) -> None:
        """Add a column."""
        super().add_column(*arguments, **{"overflow": "fold", **settings})
