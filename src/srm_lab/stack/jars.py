"""Kafka's jars: locked coordinates, fetched once from Maven Central into the user's cache.

A lock file next to this module names every jar of a version's run-time class path with its
SHA-256: of the version that the stack runs, and of older ones that only tests use. A jar
enters the cache by an atomic rename after its checksum was verified, so an interrupted fetch or
several at once leave nothing half written.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Final

import httpx
import platformdirs
import tenacity

from srm.errors import StackError
from srm.files import disk_errors, write_atomically

logger = logging.getLogger(__name__)
_MEGABYTE: Final = 1_000_000

KAFKA_VERSION: Final = "4.3.1"
MAVEN_CENTRAL: Final = "https://repo.maven.apache.org/maven2"
_PARALLEL_FETCHES: Final = 8
_ATTEMPTS: Final = 5
_TIMEOUT_SECONDS: Final = 60.0
_SERVER_TROUBLE: Final = 500
_TOO_MANY_REQUESTS: Final = 429

Progress = Callable[[int, int], None]
"""Called with (bytes present, bytes in all) after each jar."""


def require_free_space(where: Path, needed_bytes: int) -> None:
    """Check the free space of the disk of ``where``, which need not exist yet."""
    existing = where.absolute()
    while not existing.exists():
        existing = existing.parent
    free = shutil.disk_usage(existing).free
    if free < needed_bytes:
        raise StackError(
            f"the disk is full: {free // _MEGABYTE} MB are free at {existing}, "
            f"{needed_bytes // _MEGABYTE} MB are needed; free some space or choose another folder"
        )


@dataclass(frozen=True, slots=True)
class Jar:
    """One locked jar."""

    group: str
    artifact: str
    version: str
    sha256: str
    size: int

    @property
    def file_name(self) -> str:
        """Name of the file, in Maven's repository and in the cache."""
        return f"{self.artifact}-{self.version}.jar"

    @property
    def path(self) -> str:
        """Path below the address of a Maven repository."""
        return f"{self.group.replace('.', '/')}/{self.artifact}/{self.version}/{self.file_name}"


class _TemporaryFetchError(Exception):
    """The repository is overloaded or broken for the moment."""


def parse_lock(text: str) -> tuple[Jar, ...]:
    """Read lines of ``group:artifact:version sha256 bytes``; ``#`` starts a comment line."""
    jars = []
    for line in text.splitlines():
        if line and not line.startswith("#"):
            coordinates, sha256, size = line.split()
            group, artifact, version = coordinates.split(":")
            jars.append(Jar(group, artifact, version, sha256, int(size)))
    return tuple(jars)


def locked_jars(version: str = KAFKA_VERSION) -> tuple[Jar, ...]:
    """Return the jars of Kafka's run-time class path in class path order.

    StackError: the version has no lock file.
    """
    lock = resources.files("srm_lab.stack") / f"kafka-{version}.lock"
    if not lock.is_file():
        raise StackError(f"no Kafka {version} here: CONTRIBUTING.md says how to add a lock file")
    return parse_lock(lock.read_text(encoding="utf-8"))


def cache_folder() -> Path:
    """Return the folder for things fetched or built once: ``$SRM_CACHE_DIR`` or the user's."""
    chosen = os.environ.get("SRM_CACHE_DIR")
    return Path(chosen) if chosen else platformdirs.user_cache_path("srm")


def jar_folder(version: str = KAFKA_VERSION) -> Path:
    """Return the folder of Kafka's jars, fetched or not."""
    return cache_folder() / f"kafka-{version}"


def maven_url() -> str:
    """Return the repository to fetch from: ``$SRM_MAVEN_URL`` or Maven Central."""
    return os.environ.get("SRM_MAVEN_URL", MAVEN_CENTRAL).rstrip("/")


def kafka_class_path(progress: Progress | None = None, version: str = KAFKA_VERSION) -> str:
    """Return the class path of Kafka, with MirrorMaker 2 for the default version.

    Fetches what the cache lacks. StackError: a jar cannot be fetched or stored, or does not match
    the lock file; the version has no lock file.
    """
    paths = fetch(locked_jars(version), jar_folder(version), maven_url(), progress)
    return os.pathsep.join(str(path) for path in paths)


def fetch(
    jars: tuple[Jar, ...], folder: Path, url: str, progress: Progress | None = None
) -> tuple[Path, ...]:
    """Make sure that ``folder`` holds the jars, each verified; return their paths in order.

    StackError: a jar cannot be fetched or stored, or is not what the lock file says.
    """
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    total = sum(jar.size for jar in jars)
    with ThreadPoolExecutor(_PARALLEL_FETCHES) as pool:
        good = pool.map(lambda jar: _digest(folder / jar.file_name) == jar.sha256, jars)
        missing = [jar for jar, is_good in zip(jars, good, strict=True) if not is_good]
    if missing:
        needed = sum(jar.size for jar in missing)
        require_free_space(folder, needed)
        logger.info("fetching %d jars (%d MB) from %s", len(missing), needed // 1_000_000, url)
        _fetch_all(missing, folder, url, total, progress)
    return tuple(folder / jar.file_name for jar in jars)


def _fetch_all(
    missing: list[Jar], folder: Path, url: str, total: int, progress: Progress | None
) -> None:
    present = total - sum(jar.size for jar in missing)
    with (
        httpx.Client(timeout=_TIMEOUT_SECONDS, follow_redirects=True) as client,
        ThreadPoolExecutor(_PARALLEL_FETCHES) as pool,
    ):
        running = {pool.submit(_fetch_one, client, jar, folder, url): jar for jar in missing}
        try:
            for done in as_completed(running):
                done.result()
                present += running[done].size
                if progress is not None:
                    progress(present, total)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _fetch_one(client: httpx.Client, jar: Jar, folder: Path, url: str) -> None:
    address = f"{url}/{jar.path}"
    try:
        content = _download(client, address)
    except (httpx.HTTPError, _TemporaryFetchError) as error:
        raise StackError(
            f"cannot fetch {address} ({_reason(error)}): check the network, or set "
            "SRM_MAVEN_URL to a mirror of Maven Central"
        ) from error
    found = hashlib.sha256(content).hexdigest()
    if found != jar.sha256:
        raise StackError(
            f"{address} is not the locked file: its SHA-256 is {found}, expected {jar.sha256}; "
            "check SRM_MAVEN_URL and any proxy in between"
        )
    write_atomically(folder / jar.file_name, content)


@tenacity.retry(
    retry=tenacity.retry_if_exception_type((httpx.TransportError, _TemporaryFetchError)),
    stop=tenacity.stop_after_attempt(_ATTEMPTS),
    wait=tenacity.wait_random_exponential(multiplier=0.5, max=10),
    reraise=True,
)
def _download(client: httpx.Client, address: str) -> bytes:
    response = client.get(address)
    if response.status_code >= _SERVER_TROUBLE or response.status_code == _TOO_MANY_REQUESTS:
        raise _TemporaryFetchError(f"HTTP {response.status_code}")
    response.raise_for_status()
    return response.content


def _reason(error: Exception) -> str:
    if isinstance(error, httpx.HTTPStatusError):
        return f"HTTP {error.response.status_code}"
    return str(error) or type(error).__name__


def _digest(path: Path) -> str | None:
    try:
        found = path.stat()
        return _digest_of(path, found.st_mtime_ns, found.st_size)
    except FileNotFoundError:
        return None


@functools.cache
def _digest_of(path: Path, _changed_ns: int, _size: int) -> str:
    """Read a file once, for as long as it does not change: all jars take a third of a second."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
