"""What the generators of documents share: ``python -m NAME [FILE]``."""

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
    """Write a document to the file that is named, by default to its place; return where.

    Args:
        render: makes its text; is told where it goes.
        default: its place in the repository.
        doc: what ``--help`` says of it.
        arguments: of the command; default: those of this process.

    Raises:
        SystemExit: they are no path, or ask for help; nothing was written.
    """
    first, _, _ = (doc or "").partition("\n")
    parser = argparse.ArgumentParser(description=first)
    parser.add_argument("path", nargs="?", type=Path, default=default, help="default: %(default)s")
    path: Path = parser.parse_args(sys.argv[1:] if arguments is None else arguments).path
    path.write_text(render(path), "utf-8")
    return path
