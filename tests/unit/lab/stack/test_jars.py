"""Kafka's jars: only what the lock file says enters the cache, and only whole."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.served import answering

from srm.errors import StackError
from srm_lab.stack.jars import Jar, cache_folder, fetch, locked_jars, maven_url, parse_lock

CONTENT = b"not really a jar"
JAR = Jar("org.example", "thing", "1.0", hashlib.sha256(CONTENT).hexdigest(), len(CONTENT))


class Repository(ThreadingHTTPServer):
    """A Maven repository in memory; each path answers its statuses in turn, the last for good."""

    def __init__(self, files: Mapping[str, bytes], statuses: list[int]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files = files
        self.statuses = statuses
        self.requests: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, Repository)
        server.requests.append(self.path)
        status = server.statuses.pop(0) if len(server.statuses) > 1 else server.statuses[0]
        content = server.files.get(self.path, b"") if status == 200 else b""
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_arguments: object) -> None:
        pass


@contextmanager
def repository(content: bytes, *statuses: int) -> Iterator[Repository]:
    server = Repository({f"/{JAR.path}": content}, list(statuses) or [200])
    with answering(server):
        yield server


def test_the_lock_file_covers_broker_tools_and_mirrormaker_with_checksums() -> None:
    jars = locked_jars()

    artifacts = {jar.artifact for jar in jars}
    assert {
        "kafka_2.13",
        "kafka-tools",
        "connect-mirror",
        "connect-mirror-client",
        "connect-runtime",
        "log4j-slf4j-impl",
    } <= artifacts
    assert len(artifacts) == len(jars)
    assert all(len(jar.sha256) == 64 and jar.size > 0 for jar in jars)


def test_a_jar_has_mavens_path() -> None:
    (jar,) = parse_lock("# comment\norg.apache.kafka:kafka_2.13:4.3.1 abc 12\n")

    assert jar.path == "org/apache/kafka/kafka_2.13/4.3.1/kafka_2.13-4.3.1.jar"
    assert jar.size == 12


def test_a_jar_is_fetched_once(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    with repository(CONTENT) as server:
        (path,) = fetch(
            (JAR,), tmp_path, server.url, lambda done, total: seen.append((done, total))
        )
        fetch((JAR,), tmp_path, server.url)

        assert server.requests == [f"/{JAR.path}"]
    assert path.read_bytes() == CONTENT
    assert seen == [(len(CONTENT), len(CONTENT))]


def test_a_damaged_jar_in_the_cache_is_fetched_again(tmp_path: Path) -> None:
    (tmp_path / JAR.file_name).write_bytes(b"half")
    with repository(CONTENT) as server:
        (path,) = fetch((JAR,), tmp_path, server.url)

    assert path.read_bytes() == CONTENT


def test_a_wrong_checksum_is_refused_and_nothing_is_kept(tmp_path: Path) -> None:
    with (
        repository(b"something else") as server,
        pytest.raises(StackError, match=r"thing-1\.0\.jar is not the locked file: its SHA-256 is"),
    ):
        fetch((JAR,), tmp_path, server.url)

    assert list(tmp_path.iterdir()) == []


def test_an_overloaded_repository_is_asked_again(tmp_path: Path) -> None:
    with repository(CONTENT, 503, 429, 200) as server:
        (path,) = fetch((JAR,), tmp_path, server.url)

        assert len(server.requests) == 3
    assert path.read_bytes() == CONTENT


def test_a_missing_jar_is_not_asked_for_again_and_names_the_way_out(tmp_path: Path) -> None:
    with (
        repository(CONTENT, 404) as server,
        pytest.raises(StackError, match=r"cannot fetch .*\(HTTP 404\).* SRM_MAVEN_URL"),
    ):
        fetch((JAR,), tmp_path, server.url)

    assert len(server.requests) == 1


def test_a_cache_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(StackError, match=r"cannot write .*file.*"):
        fetch((JAR,), tmp_path / "file" / "kafka", "http://127.0.0.1:1")


def test_cache_and_repository_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SRM_CACHE_DIR", "/somewhere")
    monkeypatch.setenv("SRM_MAVEN_URL", "https://mirror.example/maven/")

    assert cache_folder() == Path("/somewhere")
    assert maven_url() == "https://mirror.example/maven"
