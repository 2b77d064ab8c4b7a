"""Archives of the classes that a Java program loads: with one, it starts at half the CPU time.

Java maps the classes of such an archive as they are, where it would read, check and link
thousands of them from their jars (JEP 350; measured in docs/decisions/0012). A program started
once for the purpose writes one when it ends in order. Java ignores an archive of other jars, or of
jars that were installed again since: it compares paths, sizes and times. So each such set has an
archive of its own.
"""

from __future__ import annotations

import hashlib
import logging
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from srm.disk import disk_errors
from srm.errors import StackError
from srm_lab.stack.jars import cache_folder
from srm_lab.stack.java import Java

logger = logging.getLogger(__name__)

_SILENT: Final = "-Xlog:cds=off,cds+dynamic=off"
"""Java would say on standard output, where a program prints its results, that one does not fit."""

OnBegin = Callable[[str], None]
"""Called with a few words before an archive is written, which takes seconds."""


def class_archive(program: str, java: Java, jars: Path) -> Path:
    """Return where the archive of a program is kept, written or not.

    Args:
        program: what it is called, with its version.
        java: the Java that it is for.
        jars: the folder of the program's jars.
    """
    found = [(str(jar), jar.stat().st_size, jar.stat().st_mtime_ns) for jar in jars.glob("*.jar")]
    digest = hashlib.sha256(repr(sorted(found)).encode()).hexdigest()[:8]
    return cache_folder() / f"{program}-java-{java.build}-{digest}.jsa"


def archive_options(archive: Path) -> tuple[str, ...]:
    """Return the options of Java that use an archive; none where there is none."""
    return (f"-XX:SharedArchiveFile={archive}", _SILENT) if archive.exists() else ()


def write_archive(
    archive: Path, run: Callable[[Path, str], object], on_begin: OnBegin | None = None
) -> None:
    """Have an archive written by ``run`` if it is missing; without one all works, but slower.

    Several at once do no harm: each writes its own, and the last one stays.

    Args:
        archive: where it is kept.
        run: runs the program from its start to its end in order, in a folder of its own and with
            one more option of Java.
            on_begin: called if it is missing.
    """
    if archive.exists():
        return
    if on_begin is not None:
        on_begin("keeps its classes for quicker starts, this time only")
    with disk_errors(archive):
        archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix=".class-archive.") as folder:
        written = Path(folder) / archive.name
        try:
            run(Path(folder), f"-XX:ArchiveClassesAtExit={written}")
            written.replace(archive)
        except (OSError, StackError, subprocess.SubprocessError) as error:
            logger.info("no archive of classes, Java starts more slowly: %s", error)
