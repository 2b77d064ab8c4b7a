"""Map of the test files: fast ones, slow groups with the paths that select them, and searches.

``make test`` runs the fast tier. ``make test-touched`` adds each slow group whose paths a change
touches. Only ``make test-all`` runs the searches: they draw new seeds, so a failure is news about
the product and no verdict on the change. The map is coarse on purpose: an import graph selects
nearly every slow file for nearly every change.

Patterns are those of `fnmatch`: ``*`` matches slashes, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final


@dataclass(frozen=True)
class Group:
    """Slow tests of one subject.

    Args:
        name: name in the output of ``make test-touched``.
        tests: patterns of its test files, below ``tests/``.
        paths: patterns of files in the repository; a change of one selects the group.
    """

    name: str
    tests: tuple[str, ...]
    paths: tuple[str, ...]


MIXED_FOLDERS: Final = (
    "airflow/",
    "browser/",
    "faults/",
    "integration/",
    "simulation/",
    "spark/",
    "spec/",
)
"""Folders in which each file is either listed in `FAST` or belongs to a group or to `SEARCHES`."""

FAST: Final = (
    "airflow/test_alerts.py",
    "airflow/test_approval.py",
    "airflow/test_move_form.py",
    "airflow/test_connections.py",
    "airflow/test_dags.py",
    "airflow/test_environment.py",
    "airflow/test_move_wait_operator.py",
    "airflow/test_moves.py",
    "airflow/test_provider.py",
    "airflow/test_replication_operator.py",
    "airflow/test_replicator_trigger.py",
    "airflow/test_report_pages.py",
    "airflow/test_rest.py",
    "airflow/test_clusters.py",
    "airflow/test_spark_jobs.py",
    "airflow/test_spark_submit.py",
    "airflow/test_triggers.py",
    "faults/test_checker.py",
    "faults/test_equal_records.py",
    "integration/kafka/test_cluster.py",
    "integration/kafka/test_tail.py",
    "integration/kafka/test_wiring.py",
    "integration/test_checkpoints_real.py",
    "integration/test_client_settings.py",
    "integration/test_dead_clusters.py",
    "integration/test_clients.py",
    "integration/test_doctor.py",
    "integration/test_driver.py",
    "integration/test_acl_sync.py",
    "integration/test_flow_switch.py",
    "integration/test_java_decoder.py",
    "integration/test_kafka_keys.py",
    "integration/test_move.py",
    "integration/test_rights.py",
    "integration/test_slot.py",
    "integration/test_srm_control.py",
    "integration/test_why_real.py",
    "simulation/test_chains.py",
    "simulation/test_log.py",
    "simulation/test_loop.py",
    "simulation/test_losing_seeds.py",
    "simulation/test_moves.py",
    "simulation/test_mutants.py",
    "simulation/test_ordinary_seeds.py",
    "simulation/test_seeds.py",
    "simulation/test_skips.py",
)
"""Files of `MIXED_FOLDERS` that ``make test`` runs. It runs all files of other folders."""

SEARCHES: Final = ("faults/test_campaign.py",)
"""Files that draw new seeds each time: ``make test-all`` alone runs them."""

EVERYTHING: Final = (
    ".ci/run",
    "Makefile",
    "hatch_build.py",
    "pyproject.toml",
    "requirements*.txt",
    "tests/conftest.py",
    "tests/waiting.py",
)
"""A change of one of these selects every group."""

_MOVES: Final = ("src/srm/domain/moves/*", "src/srm/engine/moves/*")
_GROUPS: Final = (
    "src/srm/domain/groups/*",
    "src/srm/domain/names/*",
    "src/srm/engine/flows/*",
    "src/srm/engine/groups/*",
)
_COPYING: Final = ("src/srm/replication/*", "src/srm/kafka/wire*")
_RESUMING: Final = (
    "src/srm/domain/flow_state/*",
    "src/srm/domain/offset_map/*",
    "src/srm/domain/recovery/*",
)

GROUPS: Final = (
    Group(
        "wheel",
        ("integration/test_wheel.py",),
        ("dags/*", "plugins/*", "src/srm/cli/main.py", "src/srm/client/*", "src/srm_lab/stack/*"),
    ),
    Group("bench", ("integration/test_bench.py",), ("bench/*",)),
    Group(
        "demo",
        ("integration/test_demo.py", "integration/test_tutorial.py"),
        ("docs/quickstart.md", "src/srm_lab/demo/*", "src/srm_lab/stack/*"),
    ),
    Group(
        "stack", ("integration/test_stack.py",), ("src/srm_lab/stack/*", "src/srm_lab/cli/stack*")
    ),
    Group(
        "browser",
        ("browser/*",),
        (
            "src/srm/pages/*",
            "src/srm/service/app.py",
            "src/srm/service/pages/*",
            "src/srm/service/routes/*",
            "src/srm/service/static/*",
        ),
    ),
    Group(
        "spec",
        ("spec/*",),
        (
            "docs/spec/*",
            "src/srm_lab/testing/simulation/moves/*",
            *(
                f"src/srm/engine/moves/{name}*"
                for name in (
                    "effects",
                    "holding",
                    "attempt",
                    "context",
                    "history",
                    "registers",
                    "store",
                    "tables",
                    "steps",
                )
            ),
            "src/srm/domain/moves/progress*",
            "src/srm/domain/moves/routing*",
        ),
    ),
    Group(
        "versions",
        (
            "integration/kafka/test_groups.py",
            "integration/test_versions.py",
            "integration/test_slot_legacy.py",
            "integration/test_mm2_interop.py",
            "integration/test_internal_topics.py",
            "integration/test_mm2_takeover.py",
            "integration/test_java_example.py",
            "integration/test_kafka_broker.py",
        ),
        (
            "examples/*",
            "src/srm/domain/names/internal_topics*",
            "src/srm/kafka/*",
            "src/srm_lab/stack/jars*",
            "src/srm_lab/stack/kafka*",
        ),
    ),
    Group(
        "damage",
        (
            "integration/kafka/test_leader_epochs.py",
            "integration/kafka/test_live_tables.py",
            "integration/test_broker_settings.py",
            "integration/test_damaged_logs.py",
            "integration/test_epochs_used_up.py",
            "integration/test_hanging_brokers.py",
            "integration/test_leader_elections.py",
            "integration/test_look_ups_by_time.py",
            "integration/test_map_cleaner.py",
            "integration/test_adoption.py",
            "integration/test_records_of_others.py",
            "integration/test_restore.py",
            "integration/test_slot_records.py",
            "integration/test_slot_refusals.py",
            "integration/test_slot_seals.py",
            "integration/test_source_return.py",
            "integration/test_stranded_clients.py",
        ),
        (
            *_COPYING,
            *_RESUMING,
            "src/srm/engine/map_reader*",
            "src/srm/engine/recovery.py",
            "src/srm/kafka/state/*",
            "src/srm/kafka/tables/*",
        ),
    ),
    Group(
        "chains of moves",
        ("simulation/test_more_chains.py",),
        (*_MOVES, "src/srm/client/routing.py"),
    ),
    Group(
        "simulation",
        ("simulation/test_more_seeds.py",),
        (
            *_COPYING,
            *_RESUMING,
            "src/srm_lab/testing/simulation/*",
        ),
    ),
    Group(
        "topologies",
        (
            "integration/test_fan_in.py",
            "integration/test_policies.py",
            "integration/test_topologies.py",
        ),
        (
            *_MOVES,
            *_GROUPS,
            *_COPYING,
            "src/srm/wiring.py",
        ),
    ),
    Group(
        "faults",
        (
            "faults/test_application_faults.py",
            "faults/test_driver_faults.py",
            "faults/test_mechanisms.py",
            "faults/test_move_kills.py",
            "faults/test_packed_environment.py",
            "faults/test_replicated_aborts.py",
            "faults/test_standalone_faults.py",
            "integration/test_commits_real.py",
            "integration/test_three_clusters.py",
        ),
        (
            *_COPYING,
            "src/srm/spark/[rsw]*.py",
        ),
    ),
    Group(
        "blackbox",
        ("integration/blackbox/*", "integration/test_redirect.py"),
        (
            *_MOVES,
            "src/srm/cli/moves/failover*",
            "src/srm/client/*",
            "src/srm/follow/*",
            "src/srm/redirect.py",
        ),
    ),
    Group(
        "spark",
        (
            "integration/test_metrics_engines.py",
            "integration/test_metrics_real.py",
            "integration/test_spread_real.py",
            "integration/test_verification_real.py",
            "spark/*",
        ),
        (
            "spark_jobs/*",
            "src/srm/domain/metrics*",
            "src/srm/domain/verification/*",
            "src/srm/engine/metrics/*",
            "src/srm/engine/verification*",
            "src/srm/spark/*",
        ),
    ),
    Group(
        "airflow",
        (
            "airflow/test_failover_dag.py",
            "airflow/test_periodic_dags.py",
            "airflow/test_service_app.py",
        ),
        ("dags/*", "plugins/*"),
    ),
    Group(
        "triggerer",
        ("airflow/test_deferred_replicator.py", "airflow/test_missed_deadline.py"),
        ("dags/srm_replication.py", "dags/srm_rpo.py", "plugins/*", "src/srm/spark/[rsw]*.py"),
    ),
    Group("helm", ("integration/test_helm.py",), ("deploy/*",)),
    Group("celery", ("airflow/test_celery.py",), ("dags/*", "plugins/*")),
    Group("airflow versions", ("airflow/test_airflow_versions.py",), ("dags/*", "plugins/*")),
    Group(
        "security",
        (
            "integration/test_broker_calls.py",
            "integration/test_client_rights.py",
            "integration/test_security.py",
        ),
        (
            "docs/security.md",
            "src/srm/config/keys.*",
            "src/srm/config/new_file.py",
            "src/srm/config/*security*",
            "src/srm/kafka/admin/acls*",
            "src/srm/kafka/wire/login*",
            "src/srm/kafka/wire/security*",
            "src/srm/kafka/wire/tls*",
        ),
    ),
    Group(
        "moves",
        (
            "integration/test_clients_across_moves.py",
            "integration/test_former_lives.py",
            "integration/test_clients_of_a_lost_cluster.py",
            "integration/test_drill_real.py",
            "integration/test_fence.py",
            "integration/test_move_fencing.py",
            "integration/test_quotas.py",
            "integration/test_report_times.py",
            "integration/test_stay_behind.py",
            "integration/test_supervision.py",
        ),
        (
            *_MOVES,
            *_GROUPS,
            "src/srm/client/*",
            "src/srm/engine/control/*",
            "src/srm/engine/drill*",
        ),
    ),
    Group(
        "service",
        (
            "integration/test_prometheus_real.py",
            "integration/test_remote_querying.py",
            "integration/test_service_access.py",
            "integration/test_service_real.py",
            "integration/test_telemetry_real.py",
        ),
        (
            "deploy/*",
            "src/srm/engine/status/*",
            "src/srm/engine/why/*",
            "src/srm/service/*",
            "src/srm/telemetry.py",
        ),
    ),
)


def matches(path: str, patterns: Sequence[str]) -> bool:
    """Whether one of the patterns matches the path."""
    return any(fnmatchcase(path, pattern) for pattern in patterns)


def group_of(test: str) -> Group | None:
    """Return the group of a test file, a path below ``tests/``."""
    if test in FAST:
        return None
    return next((group for group in GROUPS if matches(test, group.tests)), None)


def tier(test: str) -> str | None:
    """Return the marker of a test file: ``slow``, ``search``, or none for the fast tier."""
    if test in SEARCHES:
        return "search"
    return "slow" if group_of(test) else None
