"""TLS of the service: whom a handshake lets in, before and after its certificate was renewed."""

from __future__ import annotations

import os
import ssl
from dataclasses import replace
from pathlib import Path

import pytest
from tests.certificates import Authority, Signed

from srm.config.model import AccessSettings
from srm.service.access.logins import Keys, server_context

HOST = "127.0.0.1"


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture
def settings(authority: Authority, tmp_path: Path) -> AccessSettings:
    (tmp_path / "ca.pem").write_text(authority.own.pem)
    write(tmp_path, authority.broker(HOST))
    return AccessSettings(
        auth="mtls",
        certificate_location=tmp_path / "server.pem",
        key_location=tmp_path / "server.key",
        ca_location=tmp_path / "ca.pem",
    )


def write(folder: Path, signed: Signed) -> None:
    (folder / "server.pem").write_text(signed.pem)
    (folder / "server.key").write_text(signed.key_pem)


def shaken(server: ssl.SSLContext, client: ssl.SSLContext) -> tuple[str, bytes | None]:
    """Shake hands in memory; return the user's common name, and the certificate of the server."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = client.wrap_bio(to_client, to_server, server_hostname=HOST)
    other = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (one, other):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    subject = (other.getpeercert() or {}).get("subject", ())
    names = [value for part in subject for key, value in part if key == "commonName"]
    return "".join(names), one.getpeercert(binary_form=True)


def asking(authority: Authority, folder: Path, user: Signed | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority.own.pem)
    if user is not None:
        (folder / "client.pem").write_text(user.pem + user.key_pem)
        context.load_cert_chain(folder / "client.pem")
    return context


def test_users_come_in_with_their_certificates_after_the_services_own_was_renewed(
    settings: AccessSettings, authority: Authority, tmp_path: Path
) -> None:
    server = server_context(settings)
    olga = asking(authority, tmp_path, authority.client("olga"))
    name, before = shaken(server, olga)
    assert name == "olga"

    write(tmp_path, authority.broker(HOST))
    os.utime(tmp_path / "server.pem", ns=(1, 1))
    name, after = shaken(server, olga)

    assert name == "olga"
    assert after != before


def test_nobody_comes_in_without_a_certificate_after_a_renewal_either(
    settings: AccessSettings, authority: Authority, tmp_path: Path
) -> None:
    server = server_context(settings)
    for _ in range(2):
        with pytest.raises(ssl.SSLError, match="CERTIFICATE"):
            shaken(server, asking(authority, tmp_path, None))
        with pytest.raises(ssl.SSLError, match=r"(?i)unknown.ca|verify.failed"):
            shaken(server, asking_as_stranger(authority, tmp_path))
        write(tmp_path, authority.broker(HOST))
        os.utime(tmp_path / "server.pem", ns=(2, 2))


def asking_as_stranger(authority: Authority, folder: Path) -> ssl.SSLContext:
    return asking(authority, folder, Authority().client("olga"))


def test_a_provider_may_have_a_certificate_of_an_authority_of_the_system(
    settings: AccessSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The HTTP library trusts only those that it brings along, unless it is given others."""
    monkeypatch.setenv("SSL_CERT_FILE", str(settings.ca_location))
    keys = Keys(f"https://{HOST}")

    _, certificate = shaken(server_context(replace(settings, auth="none")), keys.trust)

    assert certificate is not None
