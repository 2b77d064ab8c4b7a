"""The key that reports are signed with, and the hash of the settings that they name."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
)
from tests.unit.domain.moves.report.reporting import SEED, signing_key

from srm.config.loader import load_config
from srm.config.model import read_public_key
from srm.errors import ConfigError, UsageError

LINES = """
clusters = P, B
P.bootstrap.servers = p:9092
B.bootstrap.servers = b:9092
"""
KEY = signing_key()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    private = Ed25519PrivateKey.from_private_bytes(SEED)
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"word"))
    (tmp_path / "report.key").write_bytes(pem)
    return tmp_path


def write(home: Path, *lines: str) -> Path:
    file = home / "srm.properties"
    file.write_text("\n".join((LINES, *lines)))
    return file


def test_without_a_location_there_is_no_key(home: Path) -> None:
    assert load_config(write(home)).report_key.read() is None


def test_the_key_is_found_next_to_the_file_and_through_the_providers_of_secrets(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPORT_KEY", str(home / "report.key"))
    (home / "password").write_text("word\n")
    locked = f"report.signing.key.password = ${{directory:{home}:password}}"
    for location in ("report.key", "${env:REPORT_KEY}"):
        file = write(
            home,
            "config.providers = env, directory",
            f"report.signing.key.location = {location}",
            locked,
        )
        config = load_config(file)
        found = config.report_key.read()
        assert found is not None
        assert found.public.key_id == KEY.public.key_id
        assert "word" not in repr(config)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("report.signing.key.location = none.key", "none.key: No such file or directory"),
        ("report.signing.key.location = report.key", "no private key in PEM that can be opened"),
        ("report.signing.key.location = srm.properties", "no private key in PEM"),
    ],
)
def test_a_key_that_cannot_be_read_is_an_error_only_when_it_is_read(
    home: Path, line: str, said: str
) -> None:
    config = load_config(write(home, line))

    with pytest.raises(ConfigError, match=said):
        config.report_key.read()


def test_a_public_key_that_cannot_be_read_is_one_line(home: Path) -> None:
    with pytest.raises(UsageError, match="none: No such file"):
        read_public_key(home / "none")
    with pytest.raises(UsageError, match="no public key in PEM"):
        read_public_key(home / "report.key")


def test_the_hash_of_the_settings_follows_what_they_say_and_never_a_secret(home: Path) -> None:
    def sha256(*lines: str) -> str:
        return load_config(write(home, *lines)).sha256

    plain = sha256("topics = a")
    assert plain == sha256("# a comment", "", "topics   =  a"), "how it is written does not count"
    assert plain == sha256("topics : a")
    assert plain != sha256("topics = b")
    one = sha256("topics = a", "sasl.password = one")
    assert one == sha256("topics = a", "sasl.password = two")
    assert one != plain, "that there is one counts"
