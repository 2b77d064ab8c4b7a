"""Reports of moves as files: the JSON that was signed, its signature, and the page.

Each revision has files of its own, so an export never replaces evidence, and those of one move can
be checked as the chain they are. The JSON is written last: where it is, the rest is.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from srm.disk import write_atomically
from srm.domain.moves.records.revisions import KeptReport
from srm.errors import StackError, UsageError


def signature_file(report: Path) -> Path:
    """Return where the signature of an exported report is."""
    return report.with_name(f"{report.name}.sig")


def export_report(kept: KeptReport, page: str, folder: Path) -> tuple[Path, ...]:
    """Write a report into a folder, which is made; files that say this already are left alone.

    Returns:
        The files that were written: JSON, signature where there is one, page.

    Raises:
        UsageError: the folder cannot be written.
    """
    report = kept.report
    # Ids may hold what cannot stand in a name; two ids never become one name.
    json = folder / f"{quote(report.move_id, safe='')}.r{report.revision}.json"
    wanted = {json.with_suffix(".html"): page.encode(), json: kept.signed.document}
    if kept.signed.signature is not None:
        wanted = {signature_file(json): kept.signed.signature.value() + b"\n", **wanted}
    return tuple(sorted(file for file, content in wanted.items() if write_file(file, content)))


def write_file(file: Path, content: bytes) -> bool:
    """Write a file so that it is there whole or not at all; False: it was there already.

    Raises:
        UsageError: it cannot be written.
    """
    try:
        if file.is_file() and file.read_bytes() == content:
            return False
        write_atomically(file, content)
    except (OSError, StackError) as error:
        raise UsageError(f"report {file}: {error}") from error
    return True
