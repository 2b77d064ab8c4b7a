"""``srm failover report``: shown, listed, exported, and checked, by us and without us."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from tests.unit.domain.moves.report.reporting import REPORT, SEED, signing_key
from tests.unit.engine.moves.control.moving import World, busy_world, config_in
from tests.unit.engine.moves.reporting.test_evidence import finished
from typer.testing import CliRunner, Result

from srm.cli.main import app
from srm.cli.moves.failover import TwoClusters
from srm.domain.moves.revisions import KeptReport, next_revision
from srm.domain.names import internal_topics
from srm.errors import IntegrityError, NotFoundError, UsageError
from srm.pages.files import export_report, signature_file

KEY = signing_key()
PAGE = Path(__file__).parents[4] / "docs" / "formats.md"


def srm(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["failover", "report", *map(str, arguments)])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An exported chain of three revisions, and the key it is checked with."""
    kept = None
    for number in range(3):
        report = replace(REPORT, revision=0, previous=(), residue={"Payments": number})
        kept = next_revision(kept, report, 1_700_000_000_000 + number, KEY)
        export_report(kept, "page", tmp_path)
    (tmp_path / "audit.pub").write_text(KEY.public.pem)
    return tmp_path


def revision(folder: Path, number: int) -> Path:
    return folder / f"failover-1.r{number}.json"


def verify(folder: Path, *names: object) -> Result:
    return srm("verify", *names, "--public-key", folder / "audit.pub")


def test_a_report_that_is_as_it_was_signed_is_one_line(folder: Path) -> None:
    result = verify(folder, revision(folder, 3))

    assert result.exit_code == 0
    assert result.output == (
        "failover-1: revision 3, after 1, 2 of 2023-11-14 22:13:20 UTC is exactly what was signed "
        f"with key {KEY.public.key_id[:16]}; failover P->B, not clean\n"
    )
    [row] = json.loads(verify(folder, revision(folder, 3), "--json").output)
    assert (row["verified"], row["revision"], row["key_id"]) == (True, 3, KEY.public.key_id)


def test_one_changed_character_is_named_with_its_file_and_ends_with_8(folder: Path) -> None:
    file = revision(folder, 3)
    file.write_bytes(file.read_bytes().replace(b'"rpo_records": 0', b'"rpo_records": 1'))

    error = verify(folder, file).exception

    assert isinstance(error, IntegrityError)
    assert error.exit_code == 8
    assert str(error) == f"report {file}: its content was changed after it was signed"


def test_a_report_without_its_signature_ends_with_3(folder: Path) -> None:
    signature_file(revision(folder, 2)).unlink()

    error = verify(folder, revision(folder, 2)).exception

    assert isinstance(error, NotFoundError)
    assert (error.exit_code, str(error)) == (3, f"report {revision(folder, 2)}: it is not signed")
    assert isinstance(verify(folder, folder / "none.json").exception, NotFoundError)


@pytest.mark.parametrize("other", ["failover-1.r2.html", "failover-1.r2.json.sig"])
def test_a_page_or_a_signature_names_the_file_that_is_signed(folder: Path, other: str) -> None:
    error = verify(folder, folder / other).exception

    assert isinstance(error, UsageError)
    assert f"check {revision(folder, 2)}" in str(error)


def test_a_report_that_somebody_else_signed_ends_with_8(folder: Path) -> None:
    (folder / "audit.pub").write_text(signing_key(bytes(32)).public.pem)

    error = verify(folder, revision(folder, 1)).exception

    assert isinstance(error, IntegrityError)
    assert f"signed with another key: {KEY.public.key_id[:16]}, not " in str(error)


def test_the_key_that_comes_with_a_signature_is_never_trusted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.delenv("SRM_CONFIG", raising=False)

    error = srm("verify", revision(folder, 1)).exception

    assert isinstance(error, UsageError)
    assert "name one with --public-key FILE" in str(error)


def test_the_revisions_of_a_move_are_checked_as_a_chain(folder: Path) -> None:
    assert verify(folder, *(revision(folder, number) for number in (3, 1, 2))).exit_code == 0

    forged = KeptReport.made(replace(REPORT, revision=1, previous=()), KEY)
    revision(folder, 1).write_bytes(forged.signed.document)
    assert forged.signed.signature is not None
    signature_file(revision(folder, 1)).write_bytes(forged.signed.signature.value())
    assert verify(folder, revision(folder, 1)).exit_code == 0, "alone it is what was signed"
    error = verify(folder, revision(folder, 1), revision(folder, 3)).exception
    assert isinstance(error, IntegrityError)
    assert "revision 3 follows from a different revision 1" in str(error)


def blocks(language: str) -> str:
    """The commands that the page gives to an auditor."""
    return str(re.search(rf"```{language}\n(sed.*?|import.*?)```", PAGE.read_text(), re.DOTALL)[1])  # type: ignore[index]


@pytest.mark.parametrize("changed", [False, True])
def test_an_auditor_checks_a_report_with_python_alone(folder: Path, changed: bool) -> None:
    as_the_page_calls_them(folder, changed)
    code = blocks("python")

    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, check=False
    )

    assert (done.returncode == 0) is not changed, done.stderr
    assert (b"InvalidSignature" in done.stderr) is changed


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
@pytest.mark.parametrize("changed", [False, True])
def test_an_auditor_checks_a_report_with_openssl_alone(folder: Path, changed: bool) -> None:
    as_the_page_calls_them(folder, changed)

    done = subprocess.run(
        ["sh", "-ec", blocks("sh")], cwd=folder, capture_output=True, text=True, check=False
    )

    assert (done.returncode == 0) is not changed, done.stderr
    assert ("Signature Verified Successfully" in done.stdout) is not changed


def as_the_page_calls_them(folder: Path, changed: bool) -> None:
    document = revision(folder, 2).read_bytes()
    (folder / "report.json").write_bytes(document.replace(b"Payments", b"payments", changed))
    shutil.copy(signature_file(revision(folder, 2)), folder / "report.json.sig")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return busy_world(config_in(tmp_path))


@pytest.fixture
def home(tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a configuration that signs, and clusters in memory on which m1 was made."""
    private = Ed25519PrivateKey.from_private_bytes(SEED)
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "report.key").write_bytes(pem)
    file = tmp_path / "srm.properties"
    file.write_text(f"{file.read_text()}\nreport.signing.key.location = report.key\n")
    monkeypatch.setenv("SRM_CONFIG", str(file))
    context = finished(world)

    @contextmanager
    def opened(*_: Any, **_named: Any) -> Iterator[Any]:
        yield context

    monkeypatch.setattr(TwoClusters, "open", opened)
    return tmp_path


def test_the_json_of_a_report_is_byte_for_byte_what_is_signed(home: Path) -> None:
    printed = srm("m1", "--format", "json").output

    assert printed == srm("m1", "--json").output == srm("show", "m1", "--json").output
    srm("m1", "--output", home / "out")
    assert (home / "out" / "m1.r1.json").read_text() == printed
    assert srm("verify", home / "out" / "m1.r1.json").exit_code == 0


@pytest.mark.usefixtures("home")
def test_each_format_shows_the_report() -> None:
    assert srm("m1", "--format", "html").output.startswith("<!doctype html>")
    assert srm("m1", "--format", "markdown").output.startswith("## Failover P → B: clean")
    text = srm("m1").output
    assert "failover P->B: clean" in text
    assert f"revision 1, signed with key {KEY.public.key_id[:16]}, sha256 " in text


def test_what_is_kept_is_listed_exported_and_checked_by_its_id(home: Path) -> None:
    assert " m1 " in srm("--list").output
    [row] = json.loads(srm("--list", "--json").output)
    assert (row["move_id"], row["mode"], row["result"]["verdict"]) == ("m1", "planned", "clean")

    assert "m1.r1.json.sig" in srm("--list", "--output", home / "all").stderr
    assert srm("--list", "--output", home / "all").stderr == ""
    assert srm("verify", "m1").output.startswith("m1: revision 1 of ")
    error = srm("verify", "m2").exception
    assert isinstance(error, NotFoundError)
    assert "no report of move 'm2'" in str(error)


@pytest.mark.usefixtures("home")
def test_a_report_that_is_kept_under_the_id_of_another_move_is_refused(world: World) -> None:
    table = world.b.compacted_topic(internal_topics.MOVES)
    table.write({b"report:m2": table.read()[b"report:m1"]})

    error = srm("verify", "m2").exception

    assert isinstance(error, IntegrityError)
    assert "the stored one is of m1" in str(error)


def test_a_call_that_names_no_move_says_what_to_give() -> None:
    for arguments in (("--list", "m1"), ("--format", "json")):
        result = srm(*arguments)
        said = f"{result.output}{result.exception}"
        assert "srm failover report" in said
