"""Placeholders: in files of any kind, in arguments without secrets."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import javaproperties
import pytest
from tests.unit.follow.following import GROUP, config_in

from srm.errors import UsageError
from srm.follow.values import Template, Values, render_arguments

SECRET = 'it\'s "odd" \\ = : é'


@pytest.fixture
def values(tmp_path: Path) -> Values:
    login = javaproperties.join_key_value("B.sasl.password", SECRET)
    lines = ("B.security.protocol=SASL_SSL", "B.sasl.mechanism=PLAIN", "B.sasl.username=u", login)
    return Values(config_in(tmp_path, *lines), GROUP, "B", "me")


def mode(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


def test_a_properties_file_has_all_a_java_client_needs(values: Values, tmp_path: Path) -> None:
    output = tmp_path / "client.properties"
    Template.java_properties(output).write(values)
    assert javaproperties.loads(output.read_text()) == values.java
    assert values.java["bootstrap.servers"] == "b1:9092"


def test_a_file_with_a_secret_is_for_its_owner_alone(values: Values, tmp_path: Path) -> None:
    for number, text in enumerate(
        ["{{ sasl_password }}", "{{ java | properties }}", "{{ librdkafka['sasl.password'] }}"]
    ):
        output = tmp_path / f"secret{number}"
        Template("in", text, output).write(values)
        assert mode(output) == 0o600, text
    Template("in", "{{ bootstrap_servers }}", tmp_path / "open").write(values)
    assert mode(tmp_path / "open") == 0o644


def test_any_format_can_be_written(values: Values, tmp_path: Path) -> None:
    text = "{{ {'topics': topics, 'all': librdkafka} | tojson }}"
    found = json.loads(Template("in", text, tmp_path / "x").render(values))
    assert found["topics"] == ["Payments", "P.Payments"]
    assert found["all"]["sasl.password"] == SECRET


def test_arguments_take_placeholders_but_no_secret(values: Values) -> None:
    given = ["--servers={{ bootstrap_servers }}", "{{topics}}", "{plain}"]
    assert render_arguments(given, values) == [
        "--servers=b1:9092",
        "Payments,P.Payments",
        "{plain}",
    ]
    for name in ("sasl_password", "sasl_jaas_config", "java"):
        with pytest.raises(UsageError, match=f"{name} is or holds a secret"):
            render_arguments([f"{{{{ {name} }}}}"], values)


def test_a_mistake_says_where_it_is(values: Values, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"app\.tmpl: 'bootstrap' is undefined"):
        Template("app.tmpl", "{{ bootstrap }}", tmp_path / "x").render(values)
    with pytest.raises(UsageError, match=r"app\.tmpl, line 2"):
        Template("app.tmpl", "\n{{ cluster", tmp_path / "x").write(values)
    with pytest.raises(UsageError, match="line 1"):
        render_arguments(["{{ cluster"], values)
    with pytest.raises(UsageError, match="IN:OUT"):
        Template.parse("just-one")
    with pytest.raises(UsageError, match="cannot be read"):
        Template.parse(f"{tmp_path}/none:out")


def test_a_file_that_cannot_be_written_leaves_nothing_behind(
    values: Values, tmp_path: Path
) -> None:
    (tmp_path / "taken").mkdir()
    before = set(tmp_path.iterdir())
    with pytest.raises(UsageError, match="taken: cannot be written"):
        Template("in", "x", tmp_path / "taken").write(values)
    assert set(tmp_path.iterdir()) == before
