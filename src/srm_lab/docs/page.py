"""A page of docs/, or a part of one, that a generator writes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path


def write(
    render: Callable[[Path], str],
    default: Path,
    doc: str | None,
    arguments: Sequence[str] | None = None,
) -> Path:
    """Write a document to the file that the command names; ``doc``'s first line is its help."""
    first, _, _ = (doc or "").partition("\n")
    parser = argparse.ArgumentParser(description=first)
    parser.add_argument("path", nargs="?", type=Path, default=default, help="default: %(default)s")
    path: Path = parser.parse_args(sys.argv[1:] if arguments is None else arguments).path
    path.write_text(render(path), "utf-8")
    return path
