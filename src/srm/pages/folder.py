"""Export of reports as files: the signed JSON, its signature, and the page.

Each revision has its own files: no export replaces evidence, and the chain can be verified. The
JSON is written last, so that its presence means a complete export.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from srm.disk import write_atomically
from srm.domain.moves.revisions import KeptReport
from srm.errors import StackError, UsageError


def signature_file(report: Path) -> Path:
    """Return the signature file of an exported report."""
    return report.with_name(f"{report.name}.sig")


def export_report(kept: KeptReport, page: str, folder: Path) -> tuple[Path, ...]:
    """Write a report into a folder: JSON, any signature, page; equal files stay unchanged."""
    report = kept.report
    # Ids may contain characters that are invalid in names; distinct ids keep distinct names.
    json = folder / f"{quote(report.move_id, safe='')}.r{report.revision}.json"
    wanted = {json.with_suffix(".html"): page.encode(), json: kept.signed.document}
    if kept.signed.signature is not None:
        wanted = {signature_file(json): kept.signed.signature.value() + b"\n", **wanted}
    return tuple(sorted(file for file, content in wanted.items() if _write_file(file, content)))


def _write_file(file: Path, content: bytes) -> bool:
    """Write a file atomically; return False if it exists with this content."""
    try:
        if file.is_file() and file.read_bytes() == content:
            return False
        write_atomically(file, content)
    except (OSError, StackError) as error:
        raise UsageError(f"report {file}: {error}") from error
    return True
