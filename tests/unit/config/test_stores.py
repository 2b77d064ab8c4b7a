"""Java's stores, as keytool writes them: read by their password, refused in one line otherwise."""

from __future__ import annotations

import base64
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from srm.config.loader import load_config, read_settings
from srm.config.new_file import Section, client_file, render
from srm.config.security import read_jks, read_trusted, translate_security
from srm.errors import ConfigError

PASSWORD, KEY_PASSWORD = "of-store", "of-key"
KEY_STORE = base64.b64decode(
    """
/u3+7QAAAAIAAAABAAAAAQADc3JtAAABohfG6j8AAAB/MH0wDgYKKwYBBAEqAhEBAQUABGtAujRPY4rNemTfO2rItJFGVMp
p8UkrfvHiI/UbfkSH6aAyTkpYDrWK/5/lmqH4WlGLp45DsorhmgMqDF0AKpdqq2sj0q8nDemjgyt0zTeVkITCTmleYG9XQL
A6SSFXDlETt40OLWEA3vp10QAAAAEABVguNTA5AAABODCCATQwgdygAwIBAgIJANf/6ZIh45tRMAoGCCqGSM49BAMCMA4xD
DAKBgNVBAMTA3NybTAgFw0yNjExMjYxMjE0MDBaGA8yMTI2MTEwMjEyMTQwMFowDjEMMAoGA1UEAxMDc3JtMFkwEwYHKoZI
zj0CAQYIKoZIzj0DAQcDQgAE+Pwnw0IBPluCA1wuxa7T6C4VNdBSrImpagdEJjQWS2OWFLGLD2prjriIrtlykjuojPDhKzo
1BHjC5iqFE49R8qMhMB8wHQYDVR0OBBYEFIZHeo1UMCctGW2tryY3ArkJLyZIMAoGCCqGSM49BAMCA0cAMEQCICUJN5CFt5
1uhjOml5BPKtD7fesGKL/1mmwSwI4P2wzFAiBHcWCXiQYhJ+Yni2eK2zDPbhso9bWutKHJPt937DLqt59hqVJ16rCH3Nnz7
0PZFYZw6RaP
"""
)
"""A key of CN=srm under its own password."""
TRUSTED_JKS = base64.b64decode(
    """
/u3+7QAAAAIAAAABAAAAAgACY2EAAAGiF8cQpQAFWC41MDkAAAE4MIIBNDCB3KADAgECAgkA1//pkiHjm1EwCgYIKoZIzj0
EAwIwDjEMMAoGA1UEAxMDc3JtMCAXDTI2MTEyNjEyMTQwMFoYDzIxMjYxMTAyMTIxNDAwWjAOMQwwCgYDVQQDEwNzcm0wWT
ATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAT4/CfDQgE+W4IDXC7FrtPoLhU10FKsialqB0QmNBZLY5YUsYsPamuOuIiu2XKSO
6iM8OErOjUEeMLmKoUTj1HyoyEwHzAdBgNVHQ4EFgQUhkd6jVQwJy0Zba2vJjcCuQkvJkgwCgYIKoZIzj0EAwIDRwAwRAIg
JQk3kIW3nW6GM6aXkE8q0Pt96wYov/WabBLAjg/bDMUCIEdxYJeJBiEn5ieLZ4rbMM9uGyj1ta60ock+33fsMuq3XhNaeVn
qbh4buChV6WCPoyk1pKM=
"""
)
TRUSTED_PKCS12 = base64.b64decode(
    """
MIICogIBAzCCAkwGCSqGSIb3DQEHAaCCAj0EggI5MIICNTCCAjEGCSqGSIb3DQEHBqCCAiIwggIeAgEAMIICFwYJKoZIhvc
NAQcBMGYGCSqGSIb3DQEFDTBZMDgGCSqGSIb3DQEFDDArBBS6z+vyPoFwZTcxI9hXTWcRZ6hyQwICJxACASAwDAYIKoZIhv
cNAgkFADAdBglghkgBZQMEASoEEJ1U4QcnI30qzut0OY4UDpiAggGg+WBjg1jJ+Fma9pLK9bPzd+AlsatH5SkEa0DcciLw6
hevli9bHUwY4nRhtu/ngtFWrMl9gDfRUgFVpEQ5sraGn1QWLnu399G3rtQA88rPYwstBDIN4AIlJcXUODsgTrAZqK5O3SwF
bAfOyIoBwc//fUcFCAeAt08jhv8l9Lvgcz8AzhqpXUg4fJW86di1nz5z6Yh66RkoyUr51fTzEmwr9yKAcFZQt/8GYlcDA81
etUGz4S8W/N8MHN1ZEEzwXutfFsUHBdnDscL4118hsxrvkAotZcKlfkkKRR1gQWmTGwIrQEb6jND3raC/Rt3u162QLxZIJ3
nk/4BbssxMnhhKrxS3zMS/YZQ4Sa22Z6gqqXMZbHfeqw0k+FmLJloR94bcJf93HNtzXkUC6DrPZBJfDAuq8Q6LtU+pnkyUg
q4WiQ/+eehzTnIK9Z1nOU9lUxupWy769JkINkXt6qLvrdv8j1545Q8XZ1X9iqrnUQeiy6nKpGSxuV50n1hIHEzxUtgBP/hK
NcowQ6SZ6SOjZVbBLgDn7nOcm98jZpTAHPj1aAAwTTAxMA0GCWCGSAFlAwQCAQUABCBkWQTg9zh8QcACAmg3NmhKCyyXKJH
8FaBzAFnr8TP8dwQUEvXuCEEsZk600EoZEKviXlkctSYCAicQ
"""
)


@pytest.fixture
def key_store(tmp_path: Path) -> str:
    return write(tmp_path / "k.jks", KEY_STORE)


def write(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)


def subject(chain: str) -> str:
    return x509.load_pem_x509_certificate(chain.encode()).subject.rfc4514_string()


def test_a_key_is_read_with_its_certificate(key_store: str) -> None:
    store = read_jks(key_store, PASSWORD, KEY_PASSWORD)

    assert store is not None
    assert subject(store.chain) == "CN=srm"
    key = load_pem_private_key(store.key.encode(), None)
    assert key.public_key() == x509.load_pem_x509_certificate(store.chain.encode()).public_key()


@pytest.mark.parametrize("content", [TRUSTED_JKS, TRUSTED_PKCS12], ids=["JKS", "PKCS12"])
def test_a_trust_store_gives_its_certificates_whatever_its_name(
    tmp_path: Path, content: bytes
) -> None:
    """Java writes PKCS12 unless it is asked for JKS, and files are still called so."""
    found = read_trusted(write(tmp_path / "trusted.jks", content), PASSWORD)

    assert subject(found) == "CN=srm"
    ssl.create_default_context(cadata=found)


def test_stores_become_texts_and_their_passwords_are_dropped(
    tmp_path: Path, key_store: str
) -> None:
    found = translate_security(
        {
            "ssl.keystore.location": key_store,
            "ssl.keystore.password": PASSWORD,
            "ssl.key.password": KEY_PASSWORD,
            "ssl.truststore.location": write(tmp_path / "t.jks", TRUSTED_JKS),
            "ssl.truststore.password": PASSWORD,
        }
    )

    assert found.keys() == {"ssl.key.pem", "ssl.certificate.pem", "ssl.ca.pem"}


@pytest.mark.parametrize(
    ("content", "passwords", "message"),
    [
        (KEY_STORE, ("wrong", KEY_PASSWORD), "its password is wrong, or it is damaged"),
        (KEY_STORE, (PASSWORD, ""), r"its key \(ssl.key.password\) is wrong"),
        (KEY_STORE[:-30], (PASSWORD, KEY_PASSWORD), "its password is wrong, or it is damaged"),
        (KEY_STORE[:30], (PASSWORD, KEY_PASSWORD), "its password is wrong, or it is damaged"),
    ],
)
def test_a_store_that_cannot_be_opened_is_named(
    tmp_path: Path, content: bytes, passwords: tuple[str, str], message: str
) -> None:
    path = write(tmp_path / "bad.jks", content)

    with pytest.raises(ConfigError, match=message) as caught:
        read_jks(path, *passwords)

    assert str(caught.value).startswith(f"{path}: not usable as a JKS store: ")
    assert PASSWORD not in str(caught.value).replace(path, "")


def test_a_trust_store_without_certificates_or_with_a_wrong_password_is_refused(
    tmp_path: Path, key_store: str
) -> None:
    with pytest.raises(ConfigError, match="the store holds no trusted certificate"):
        read_trusted(key_store, PASSWORD)
    with pytest.raises(ConfigError, match="not usable as a PKCS12 store: Invalid password"):
        read_trusted(write(tmp_path / "t.p12", TRUSTED_PKCS12), "wrong")


def test_certificates_of_a_jks_store_need_no_password_as_in_java(tmp_path: Path) -> None:
    store = write(tmp_path / "t.jks", TRUSTED_JKS)

    assert subject(translate_security({"ssl.truststore.location": store})["ssl.ca.pem"]) == "CN=srm"
    with pytest.raises(ConfigError, match="not usable as a JKS store"):
        read_trusted(write(tmp_path / "short.jks", TRUSTED_JKS[:60]), "")


@pytest.mark.parametrize("content", [TRUSTED_JKS, TRUSTED_PKCS12], ids=["JKS", "PKCS12"])
def test_stores_are_not_read_where_only_a_file_is_written_or_dags_are_declared(
    tmp_path: Path, content: bytes
) -> None:
    store, file = write(tmp_path / "t.jks", content), tmp_path / "srm.properties"
    lines = (
        ("clusters", "P, B"),
        *((f"{alias}.bootstrap.servers", f"{alias}:9092") for alias in ("P", "B")),
        *(("P->B.enabled", "true"), ("config.providers", "airflow")),
        *(("security.protocol", "SSL"), ("ssl.truststore.location", store)),
    )
    file.write_text(
        "".join(f"{key} = {value}\n" for key, value in lines)
        + "ssl.truststore.password = ${airflow:conn:password}\n"
    )

    declared = load_config(file, connections=lambda _name: {"password": "unread"})
    client = client_file(read_settings(file, connections=lambda _: {"password": PASSWORD}), {})
    imported = render([Section("", [*lines, ("ssl.truststore.password", PASSWORD)])], "new")

    assert [str(flow) for flow in declared.flows] == ["P->B"]
    assert f"P.ssl.truststore.location = {store}" in client
    assert "# P.ssl.truststore.password" in client
    assert "${env:SSL_TRUSTSTORE_PASSWORD}" in imported
