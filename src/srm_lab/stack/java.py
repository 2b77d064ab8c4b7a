"""Java for the stack: the installed one, and archives of classes by which it starts faster."""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from srm.errors import StackError
from srm.files import disk_errors
from srm_lab.stack.jars import cache_folder

MINIMUM_VERSION: Final = 17
QUICK_START: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Options of a Java that runs for minutes: the second compiler alone costs half its CPU time."""
_VERSION_TIMEOUT_SECONDS: Final = 60.0
_BUILD: Final = re.compile(r"\(build ([\w.+-]+)")
_QUOTED_VERSION: Final = re.compile(r'version "(\d+)(?:\.(\d+))?')


@dataclass(frozen=True, slots=True)
class Java:
    """A usable Java runtime: its ``java`` program, its feature version, and which build it is."""

    program: Path
    version: int
    build: str


def parse_version(output: str) -> int | None:
    """Return the feature version in the output of ``java -version``, None if there is none.

    Up to Java 8 versions were written ``1.8``, since then ``17.0.15`` or just ``25``.
    """
    found = _QUOTED_VERSION.search(output)
    if found is None:
        return None
    major, minor = int(found[1]), int(found[2] or 0)
    return minor if major == 1 else major


def find_java(environ: Mapping[str, str] = os.environ) -> Java:
    """Return the runtime in ``JAVA_HOME``, or else the first ``java`` on ``PATH``.

    ``JAVA_HOME`` decides alone where it is set, because Spark's own scripts do the same.
    StackError: there is none, it does not run, or it is older than Java 17.
    """
    return _look_at(_locate(environ))


@functools.cache
def _look_at(program: Path) -> Java:
    """Start a Java once to ask what it is: no process outlives an update of it."""
    try:
        result = subprocess.run(
            [program, "-version"],
            capture_output=True,
            text=True,
            timeout=_VERSION_TIMEOUT_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise StackError(f"{program} does not run ({error}): install a JDK 17 or newer") from error
    banner = result.stderr + result.stdout
    version = parse_version(banner)
    if version is None:
        raise StackError(f"{program} -version names no version: install a JDK 17 or newer")
    if version < MINIMUM_VERSION:
        raise StackError(
            f"{program} is Java {version}, but Kafka and Spark need {MINIMUM_VERSION} or newer: "
            "install a JDK 17 and point JAVA_HOME at it"
        )
    build = _BUILD.search(banner)
    return Java(program, version, build[1] if build else str(version))


def _locate(environ: Mapping[str, str]) -> Path:
    home = environ.get("JAVA_HOME")
    if home:
        program = Path(home) / "bin" / "java"
        if not program.is_file():
            raise StackError(
                f"JAVA_HOME is {home}, but {program} does not exist: correct or unset it"
            )
        return program
    found = shutil.which("java", path=environ.get("PATH"))
    if found is None:
        raise StackError(
            "Java is missing: install a JDK 17 or newer (for example openjdk-17-jdk-headless) "
            "or point JAVA_HOME at one"
        )
    return Path(found)


logger = logging.getLogger(__name__)

_SILENT: Final = "-Xlog:cds=off,cds+dynamic=off"
"""Java would say on standard output, where a program prints its results, that one does not fit."""

_UNUSED_S: Final = 7 * 86_400.0

OnBegin = Callable[[str], None]
"""Called with a few words before an archive is written, which takes seconds."""


def class_archive(program: str, java: Java, jars: Path) -> Path:
    """Return where the archive of a program is kept, written or not.

    ``program``: what it is called, with its version. ``java``: the Java that it is for. ``jars``:
    the folder of the program's jars.
    """
    found = [(str(jar), jar.stat().st_size, jar.stat().st_mtime_ns) for jar in jars.glob("*.jar")]
    digest = hashlib.sha256(repr(sorted(found)).encode()).hexdigest()[:8]
    return cache_folder() / f"{program}-java-{java.build}-{digest}.jsa"


def archive_options(archive: Path) -> tuple[str, ...]:
    """Return the options of Java that use an archive, and note the use; none without an archive."""
    if not archive.exists():
        return ()
    with suppress(OSError):  # the folder may be read-only
        archive.touch()
    return f"-XX:SharedArchiveFile={archive}", _SILENT


def write_archive(
    archive: Path, run: Callable[[Path, str], object], on_begin: OnBegin | None = None
) -> None:
    """Have an archive written by ``run`` if it is missing; without one all works, but slower.

    Several at once do no harm: each writes its own, and the last one stays. ``archive``: where it
    is kept. ``run``: runs the program from its start to its end in order, in a folder of its own
    and with one more option of Java. ``on_begin``: called if it is missing.
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
            _remove_unused(archive)
        except (OSError, StackError, subprocess.SubprocessError) as error:
            logger.info("no archive of classes, Java starts more slowly: %s", error)


def _remove_unused(archive: Path) -> None:
    """Remove archives of the same program, 140 MB each, that no run has used for a week."""
    program = archive.name.partition("-")[0]
    for other in archive.parent.glob(f"{program}-*.jsa"):
        with suppress(OSError):  # another run may remove it, too
            if time.time() - other.stat().st_mtime > _UNUSED_S:
                other.unlink()
