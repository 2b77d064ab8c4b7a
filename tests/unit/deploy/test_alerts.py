"""The alert rules are taken by Prometheus, fire when they should and only then."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import yaml
from tests.debian import program
from tests.unit.deploy.queries import DEPLOY, RULES, alerts, names_in

from srm.service.prometheus.metric_table import METRICS

CASES = Path(__file__).with_name("alerts.yaml")
MONITORING = Path(__file__).parents[3] / "docs" / "monitoring.md"


def promtool(*arguments: object) -> str:
    done = subprocess.run(
        [program("promtool", "prometheus"), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_prometheus_takes_the_rules_and_the_configuration_that_loads_them() -> None:
    assert f"SUCCESS: {len(alerts())} rules found" in promtool("check", "rules", RULES)
    promtool("check", "config", DEPLOY / "prometheus" / "prometheus.yaml")


def test_each_alert_fires_when_it_should_and_only_then() -> None:
    assert "SUCCESS" in promtool("test", "rules", CASES)


def test_there_is_a_case_of_each_alert_in_which_it_fires() -> None:
    cases = yaml.safe_load(CASES.read_text())["tests"]
    checks = [check for case in cases for check in case.get("promql_expr_test", ())]

    fired = [re.findall(r'alertname="(\w+)"', str(check["exp_samples"])) for check in checks]

    assert {name for names in fired for name in names} == {rule["alert"] for rule in alerts()}
    assert all(any(not check["exp_samples"] for check in case) for case in _checks(cases))


def _checks(cases: list[dict[str, list[dict[str, object]]]]) -> list[list[dict[str, object]]]:
    return [case["promql_expr_test"] for case in cases if "promql_expr_test" in case]


def test_alerts_ask_only_for_what_is_told() -> None:
    asked = set.union(*(names_in(rule["expr"]) for rule in alerts()))

    assert asked
    assert asked <= METRICS.keys()


def test_each_alert_says_what_to_do_and_has_a_row_in_the_documentation() -> None:
    rows = re.findall(r'^\| <a id="(\w+)"></a>(Srm\w+) \| \w', MONITORING.read_text(), re.MULTILINE)

    assert {name for _, name in rows} == {rule["alert"] for rule in alerts()}
    assert all(anchor == name.lower() for anchor, name in rows)
    for rule in alerts():
        notes = rule["annotations"]
        assert all((notes["summary"], notes["action"])), rule["alert"]
        assert notes["runbook"] == f"docs/monitoring.md#{rule['alert'].lower()}"
        assert rule["labels"]["severity"] in {"critical", "warning"}


def test_the_commands_that_alerts_name_exist() -> None:
    commands = (MONITORING.parent / "commands.md").read_text("utf-8")

    named = {
        name
        for rule in alerts()
        for name in re.findall(r"\bsrm ((?:[a-z]+ ?)+)", rule["annotations"]["action"])
    }

    wanted = {_longest_command(name.split(), commands) for name in named}
    assert None not in wanted, named


def _longest_command(words: list[str], commands: str) -> str | None:
    for length in range(len(words), 0, -1):
        name = f"`srm {' '.join(words[:length])}`"
        if name in commands:
            return name
    return None
