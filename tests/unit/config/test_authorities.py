"""A list, a glob or a folder of certificates is taken wherever one file is."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from tests.certificates import Authority

from srm.config.loader import find_problems, load_config
from srm.config.model import ServiceSettings
from srm.config.security import translate_security, trust
from srm.errors import ConfigError
from srm.service.access.logins import authorities


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder of three authorities in two files, and one file without certificates."""
    one, two, three = (Authority(name).own.pem for name in ("one", "two", "three"))
    (tmp_path / "a.crt").write_text(f"# \xe9\n{one}{two}", "utf-8")
    (tmp_path / "b.crt").write_text(three)
    (tmp_path / "README").write_text("none")
    return tmp_path


def names(context: ssl.SSLContext) -> set[str]:
    found = [
        dict(pair for part in one["subject"] for pair in part) for one in context.get_ca_certs()
    ]  # type: ignore[misc]
    return {one["commonName"] for one in found}


PLACES = ("{0}/a.crt,{0}/b.crt", "{0}/*.crt", "{0}", "{0}/a.crt, {0}/*.crt")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("key", ["ssl.truststore.location", "ssl.ca.location", "https.ca.location"])
def test_all_certificates_of_several_files_become_one_text(
    folder: Path, key: str, place: str
) -> None:
    found = translate_security({key: place.format(folder)})

    (name,) = found
    assert name == ("https.ca.pem" if key.startswith("https") else "ssl.ca.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=found[name])
    assert len(names(context)) == found[name].count("BEGIN") == 3


@pytest.mark.parametrize("place", ["a.crt, b.crt", "*.crt", "."])
def test_the_service_takes_several_files_of_the_folder_of_its_configuration(
    folder: Path, place: str
) -> None:
    settings = ServiceSettings.of({"access.oidc_ca_location": place}, folder)

    context = authorities("service.oidc.ca.location", settings.access.oidc_ca_location)

    assert len(names(context)) == 3


def test_one_file_and_a_folder_of_openssl_stay_places_which_are_read_at_each_renewal(
    folder: Path,
) -> None:
    file = str(folder / "a.crt")
    assert translate_security({"ssl.truststore.location": file}) == {"ssl.ca.location": file}
    (folder / "1234abcd.0").write_text("")

    assert translate_security({"ssl.ca.location": str(folder)}) == {"ssl.ca.location": str(folder)}
    trust(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), str(folder))


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("{0}/*.pem", "ssl.ca.location: {0}/*.pem: cannot be read on "),
        ("{0}/a.crt,{0}/c.crt", "ssl.ca.location: {0}/c.crt: cannot be read on "),
        ("{0}/READ*", "ssl.ca.location: {0}/READ*: file, without a certificate (PEM"),
        ("{0}/empty", "ssl.ca.location: {0}/empty: folder with 0 files, without a certificate"),
    ],
)
def test_a_part_without_a_certificate_is_named(folder: Path, place: str, message: str) -> None:
    (folder / "empty").mkdir()
    with pytest.raises(ConfigError) as refused:
        translate_security({"ssl.ca.location": place.format(folder)})

    assert message.format(folder) in str(refused.value)


def test_a_trust_store_without_a_certificate_is_named_by_its_own_key(tmp_path: Path) -> None:
    given = {"ssl.truststore.location": str(tmp_path), "ssl.truststore.type": "PEM"}
    with pytest.raises(ConfigError, match=rf"^ssl\.truststore\.location: {tmp_path}: folder with"):
        translate_security(given)


CLUSTERS = "clusters = P, B\nP.bootstrap.servers = p:1\nB.bootstrap.servers = b:1\n"


@pytest.mark.parametrize("place", ["~/ca", "~/ca/a.crt", "~/ca/*.crt", "~/ca/a.crt, ~/ca/b.crt"])
def test_a_place_may_be_in_a_home(
    folder: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
) -> None:
    home = tmp_path_factory.mktemp("home")
    (home / "ca").symlink_to(folder)
    monkeypatch.setenv("HOME", str(home))
    file = home / "srm.properties"
    file.write_text(f"{CLUSTERS}P.security.protocol = SSL\nP.ssl.ca.location = {place}\n")

    _, problems = find_problems(file, lambda *_: None)
    client = load_config(file).client("P", "admin")

    assert problems == ()
    assert client.get("ssl.ca.location") == (f"{home}/ca/a.crt" if place == "~/ca/a.crt" else None)


def test_a_folder_of_the_service_is_found_from_that_of_the_file(folder: Path) -> None:
    (folder / "ca").mkdir()
    (folder / "ca" / "a.crt").write_text((folder / "a.crt").read_text())
    file = folder / "srm.properties"
    file.write_text(f"{CLUSTERS}service.oidc.ca.location = ca\n")

    _, problems = find_problems(file, lambda *_: None)

    assert problems == ()
