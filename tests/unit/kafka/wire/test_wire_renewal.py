"""TLS files that are renewed under a running process count for its next connections."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.certificates import Authority, Signed
from tests.waiting import DEADLINE_S

from srm.errors import ConfigError
from srm.kafka.wire.connection import Connection
from srm.kafka.wire.login import SecurityAccess
from srm.kafka.wire.security import Security, Tls
from srm.replication.buffers import BufferPool

PASSWORD = "of the tests"


def replace(path: Path, data: bytes | str) -> None:
    """Put a new file in the place of the old one, at once, as renewals do."""
    new = path.with_suffix(".new")
    new.write_bytes(data.encode() if isinstance(data, str) else data)
    new.rename(path)


class Listener:
    """A broker's listener that asks for certificates and notes whose they are."""

    def __init__(self, folder: Path, authority: Authority) -> None:
        self.seen: list[str] = []
        self._folder = folder
        self._clients = authority
        self.show(authority)

    def show(self, authority: Authority) -> None:
        """Use a certificate that an authority has signed just now."""
        own = authority.broker("127.0.0.1")
        file = self._folder / "broker.pem"
        file.write_text(own.pem + own.key_pem)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(file)
        self._context.load_verify_locations(cadata=self._clients.own.pem)
        self._context.verify_mode = ssl.CERT_REQUIRED

    async def connect(self, access: SecurityAccess) -> None:
        served = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            [[(_, name)]] = writer.get_extra_info("peercert")["subject"]
            self.seen.append(name)
            served.set()
            with suppress(OSError):
                await reader.read()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=self._context)
        port = server.sockets[0].getsockname()[1]
        try:
            connection = await Connection.open("127.0.0.1", port, BufferPool(), access)
            async with asyncio.timeout(DEADLINE_S):
                await served.wait()
            connection.close()
        finally:
            server.close()


def _separate(folder: Path, client: Signed) -> None:
    replace(folder / "client.key", client.key_pem)
    replace(folder / "client.pem", client.pem)


def _sealed(folder: Path, client: Signed) -> None:
    replace(folder / "client.key", client.key_pem_under(PASSWORD))
    replace(folder / "client.pem", client.pem)


def _together(folder: Path, client: Signed) -> None:
    replace(folder / "client.pem", client.key_pem + client.pem)


def _store(folder: Path, client: Signed) -> None:
    replace(folder / "client.p12", client.pkcs12(PASSWORD))


def _linked(folder: Path, client: Signed) -> None:
    """Swap a folder behind a link, as Kubernetes does with secrets."""
    version = folder / f"version-{len(list(folder.iterdir()))}"
    version.mkdir()
    (version / "client.pem").write_text(client.key_pem + client.pem)
    link = folder / "now.new"
    link.symlink_to(version)
    link.rename(folder / "now")


FORMATS: dict[str, tuple[Callable[[Path, Signed], None], dict[str, str]]] = {
    "two files": (
        _separate,
        {"certificate_location": "client.pem", "key_location": "client.key"},
    ),
    "two files, with a password": (
        _sealed,
        {
            "certificate_location": "client.pem",
            "key_location": "client.key",
            "key_password": PASSWORD,
        },
    ),
    "one file": (_together, {"certificate_location": "client.pem", "key_location": "client.pem"}),
    "a store": (_store, {"keystore_location": "client.p12", "keystore_password": PASSWORD}),
    "behind a link": (
        _linked,
        {"certificate_location": "now/client.pem", "key_location": "now/client.pem"},
    ),
}


@pytest.mark.parametrize("form", FORMATS)
def test_a_renewed_certificate_is_shown_on_the_next_connection(tmp_path: Path, form: str) -> None:
    write, settings = FORMATS[form]
    authority = Authority()
    (tmp_path / "client").mkdir()
    write(tmp_path / "client", authority.client("first"))
    placed = {
        key: str(tmp_path / "client" / value) if key.endswith("location") else value
        for key, value in settings.items()
    }
    security = Security("P", tls=Tls(ca_pem=authority.own.pem, **placed))  # type: ignore[arg-type]
    access = SecurityAccess(security)
    listener = Listener(tmp_path, authority)

    asyncio.run(listener.connect(access))
    write(tmp_path / "client", authority.client("second"))
    asyncio.run(listener.connect(access))

    assert listener.seen == ["first", "second"]


def test_without_a_renewal_nothing_is_read_again(tmp_path: Path) -> None:
    authority = Authority()
    (tmp_path / "ca.pem").write_text(authority.own.pem)
    access = SecurityAccess(Security("P", tls=Tls(ca_location=str(tmp_path / "ca.pem"))))

    assert access.context() is access.context()


def test_a_renewed_authority_is_trusted(tmp_path: Path) -> None:
    old, new = Authority("old"), Authority("new")
    trusted = tmp_path / "ca.pem"
    trusted.write_text(old.own.pem)
    client = old.client("srm")
    tls = Tls(ca_location=str(trusted), certificate_pem=client.pem, key_pem=client.key_pem)
    access = SecurityAccess(Security("P", tls=tls))
    listener = Listener(tmp_path, old)
    asyncio.run(listener.connect(access))
    listener.show(new)
    with pytest.raises(ConfigError, match=r"check ssl\.ca\.location"):
        asyncio.run(listener.connect(access))

    replace(trusted, old.own.pem + new.own.pem)
    asyncio.run(listener.connect(access))

    assert listener.seen == ["srm", "srm"]


def test_a_folder_of_authorities_is_looked_into(tmp_path: Path) -> None:
    """OpenSSL keeps what it has once found there under a name."""
    (tmp_path / "1234abcd.0").write_text(Authority("old").own.pem)
    access = SecurityAccess(Security("P", tls=Tls(ca_location=str(tmp_path))))
    before = access.context()

    replace(tmp_path / "1234abcd.0", Authority("new").own.pem)

    assert access.context() is not before


def test_in_the_middle_of_a_renewal_the_former_files_are_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority()
    _separate(tmp_path, authority.client("first"))
    tls = Tls(
        ca_pem=authority.own.pem,
        certificate_location=str(tmp_path / "client.pem"),
        key_location=str(tmp_path / "client.key"),
    )
    access = SecurityAccess(Security("P", tls=tls))
    listener = Listener(tmp_path, authority)
    second = authority.client("second")

    replace(tmp_path / "client.key", second.key_pem)
    with caplog.at_level(logging.WARNING):
        asyncio.run(listener.connect(access))
    assert "using the files read before" in caplog.text
    (tmp_path / "client.pem").unlink()
    asyncio.run(listener.connect(access))
    replace(tmp_path / "client.pem", second.pem)
    asyncio.run(listener.connect(access))

    assert listener.seen == ["first", "first", "second"]
