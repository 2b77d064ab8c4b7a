"""The dashboard is one that Grafana takes, as far as that can be seen without Grafana."""

from __future__ import annotations

import subprocess
from itertools import combinations
from pathlib import Path

import yaml
from tests.debian import program
from tests.unit.deploy.queries import DEPLOY, dashboard, names_in, panel_queries, panels

from srm.service.prometheus.exposition import DURATION, REQUESTS
from srm.service.prometheus.metric_table import METRICS

PROCESS = {"process_resident_memory_bytes", "process_cpu_seconds_total"}
"""Told by prometheus_client; tests/unit/service/prometheus/test_exposition.py sees them."""


def test_prometheus_can_parse_every_query(tmp_path: Path) -> None:
    rules = [
        {"record": f"query:{number}", "expr": query} for number, query in enumerate(panel_queries())
    ]
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))

    checked = subprocess.run(
        [program("promtool", "prometheus"), "check", "rules", str(file)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{len(rules)} rules found" in checked.stdout


def test_panels_ask_only_for_what_is_told_and_leave_nothing_of_a_flow_out() -> None:
    asked = set.union(*map(names_in, panel_queries()))

    assert asked <= METRICS.keys() | {REQUESTS, DURATION} | PROCESS
    of_moves = {name for name in METRICS if name.startswith(("srm_move_", "srm_drill_"))}
    left_out = of_moves - asked
    assert left_out <= {"srm_drill_running"}


def test_ids_are_unique_and_panels_do_not_overlap() -> None:
    everything = dashboard()["panels"]
    ids = [panel["id"] for panel in everything]

    assert len(ids) == len(set(ids))
    for one, other in combinations([panel["gridPos"] for panel in everything], 2):
        apart = (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )
        assert apart, (one, other)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in everything)


def test_every_panel_has_a_unit_a_description_and_the_chosen_data_source() -> None:
    for panel in panels():
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["description"], panel["title"]
        for asked in (panel, *panel["targets"]):
            assert asked["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        refs = [target["refId"] for target in panel["targets"]]
        assert len(refs) == len(set(refs))


def test_variables_choose_data_source_clusters_topics_and_groups() -> None:
    variables = {one["name"]: one for one in dashboard()["templating"]["list"]}

    assert [*variables] == ["datasource", "source", "target", "topic", "group"]
    for name in ("source", "target", "topic", "group"):
        asked = names_in(variables[name]["query"]["query"])
        assert asked <= METRICS.keys()
        assert all(name in METRICS[metric].labels for metric in asked)


def test_grafana_finds_the_dashboard_and_prometheus_by_the_provisioning_files() -> None:
    folder = DEPLOY / "grafana" / "provisioning"

    [provider] = yaml.safe_load((folder / "dashboards" / "srm.yaml").read_text())["providers"]
    [source] = yaml.safe_load((folder / "datasources" / "prometheus.yaml").read_text())[
        "datasources"
    ]

    assert (provider["type"], source["type"]) == ("file", "prometheus")
    compose = yaml.safe_load((DEPLOY.parent / "docker-compose.yaml").read_text())
    grafana = compose["services"]["grafana"]["configs"]
    targets = {Path(one["target"]) for one in grafana}
    assert Path(provider["options"]["path"]) / "srm.json" in targets
    files = [Path(compose["configs"][one["source"]]["file"]) for one in grafana]
    assert all((DEPLOY.parent / file).exists() for file in files)


def test_the_configuration_for_containers_is_that_for_everybody_else() -> None:
    compose = yaml.safe_load((DEPLOY.parent / "docker-compose.yaml").read_text())

    here = yaml.safe_load(compose["configs"]["prometheus"]["content"])

    [scraped] = here["scrape_configs"]
    scraped["static_configs"][0]["targets"] = ["localhost:6670"]
    assert here == yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yaml").read_text())
