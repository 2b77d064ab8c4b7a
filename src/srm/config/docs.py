"""Writes docs/configuration.md from the tables of keys: ``python -m srm.config.docs [FILE]``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from srm.config.keys import (
    CLASS_KEYS,
    CLIENT_KEYS,
    FILE_KEYS,
    FLOW_KEYS,
    IGNORED_KEYS,
    IGNORED_PREFIXES,
    MOVE_KEYS,
    RECORD_KEYS,
    TRANSLATED,
    ClientKey,
    ConfigKey,
)
from srm.domain.moves.routing import order_schema
from srm.files import write

DEFAULT_PATH: Final = Path("docs/configuration.md")
SCHEMA_PATH: Final = Path("docs/redirect.schema.json")

_ORIGINS: Final = {
    "mm2": "MirrorMaker 2",
    "srm": "SRM",
    "replicator": "Confluent Replicator",
    "connect": "Kafka Connect",
    "ours": "srm",
}
_LEVELS: Final = {"file": "no prefix only", "flow": "any", "replication": "`A->B.` only"}

_HEAD: Final = """\
# Configuration

<!-- Written by `python -m srm.config.docs`; change the table src/srm/config/keys.txt instead. -->

srm reads one properties file in the syntax of MirrorMaker 2 and Streams Replication Manager. It takes every key of MirrorMaker 2, Kafka
Connect and the Kafka clients (4.3.1), and warns of those that have no meaning here. Commands look for the file at `--config FILE`, then
`$SRM_CONFIG`, then `./srm.properties`. The [README](../README.md#see-it-work) has an example.

- `srm config check` reads the file and reports what is wrong with it. It connects to nothing; with `--online` it also [looks at the
  clusters](operate.md#lists-and-check-up).
- A key that has no meaning here is a warning. One more warning lists all unknown keys, without their values. The replicator logs the same
  warnings when it starts; every other program logs how many keys are unknown.
- A misspelt key is an error that names the right one: a letter too many, missing, wrong or misplaced, other separators or capitals, or the
  last word left out. So is a cluster's alias that is misspelt in the same way.
- `srm config check --strict` takes every unknown key for an error.
- `srm config explain KEY --flow 'P->B'` shows a value, the line that decided it and the lines that were overruled.

## Precedence

| level, from weak to strong | written as | reaches |
|---|---|---|
| default | | everything |
| global | `tasks.max` | everything |
| workers | `workers.tasks.max` | everything |
| connectors | `connectors.tasks.max` | everything |
| cluster | `B.tasks.max` | the flows that target B; for client settings: all clients of B |
| replication | `P->B.tasks.max` | the flow P->B |

Within one level the more specific line wins (`B.consumer.fetch.min.bytes` over `B.fetch.min.bytes`), then the later one. `A->B = true` is
short for `A->B.enabled = true`. Lists are separated by commas; each entry of a list of patterns is a name or a regular expression that has
to match the whole name. Intervals are seconds; fractions are taken.

Values kept elsewhere are written as for Kafka: `${file:/etc/secret.properties:key}`, `${directory:/run/secrets:name}`, `${env:NAME}`, each
after `config.providers = file, directory, env`. Logins may come from [connections of Airflow](airflow.md#credentials).

Policies and filters of your own are Python classes, named `module:Class`, on `PYTHONPATH` of each machine. A policy derives from
`srm.domain.names.policy.ReplicationPolicy` and gets the alias of the source and the separator; a filter derives from
`srm.domain.names.policy.NameFilter`, gets the lists and overrides `matches(name)`. Test yours with `check_policy` and `check_filter` of
`srm.domain.names.policy`. Policies of MirrorMaker 2 and SRM may keep their Java names.

What differs from MirrorMaker 2 is in [migrate](migrate-from-mm2.md#what-differs).
"""  # noqa: E501

_SPARK: Final = """\
## Spark's settings

Keys `spark.*` without a prefix are Spark's own, by Spark's names. `srm replicate`, the jobs in `spark_jobs/` and the DAGs' spark-submit use
them ([running](running.md#which-spark)). Settings of a spark-submit by hand win. A local Spark takes no files, archives and Python from them.

| key | effect |
|---|---|
| `spark.executor.memory`, `spark.kubernetes.container.image`, ... | given as `--conf` |
| `spark.files` | files for the working folders of driver and executors (`--files`) |
| `spark.archives` | archives to unpack there, `environment.tar.gz#environment` (`--archives`) |
| `spark.pyspark.python` | Python of the executors; a relative path is one in an archive |
| `spark.master` | master of commands without `--master`; in DAGs the connection decides |
| `spark.submit.deployMode` | deploy mode of DAGs whose connection has none |
"""  # noqa: E501

_CLIENTS_HEAD: Final = """\
## Client settings

Names of the Java clients and of librdkafka are taken.

| written as | reaches |
|---|---|
| `A.KEY`, without a prefix `KEY` | all clients of cluster A, of all clusters |
| `consumer.KEY`, `producer.KEY` (or `producer.override.KEY`), `admin.KEY` | one kind of client |
| `A->B.consumer.KEY`, `A->B.source.consumer.KEY` | consumers of one flow, on the source |
| `A->B.producer.KEY`, `A->B.target.producer.KEY` | producers of one flow, on the target |
| `A->B.admin.KEY` | both sides of one flow |

In a replication, records are fetched with the consumer settings of the source, and copies, map, positions and heartbeats are written with the
producer settings of the target; `admin.` settings are for what only administrators may do. So each may log in as a [user of its
own](security.md#users-of-their-own), and brokers see each `client.id` (`srm` where none is set) in their request logs, quotas and metrics.
"""  # noqa: E501


def render() -> str:
    """Return the whole page."""
    return "\n".join(
        (
            _HEAD,
            "## Keys\n",
            *_key_table((*FILE_KEYS, *FLOW_KEYS, *MOVE_KEYS, *RECORD_KEYS, *CLASS_KEYS)),
            "",
            "`stack.*` keys configure the embedded stack of `srm stack`.\n",
            _SPARK,
            "## Keys without meaning here\n",
            "srm knows them, does nothing with them, and warns of each.\n",
            *_table_of_ignored((*IGNORED_KEYS, *IGNORED_PREFIXES)),
            "",
            _CLIENTS_HEAD,
            *_client_tables(),
            "",
        )
    )


def _key_table(keys: Iterable[ConfigKey]) -> Iterable[str]:
    yield "| key | values | default | level | from | meaning |"
    yield "|---|---|---|---|---|---|"
    for key in keys:
        values = ", ".join(f"`{c}`" for c in key.choices) or key.kind
        default = f"`{_cell(key.default)}`" if key.default else ""
        yield (
            f"| `{key.name}` | {values} | {default} | {_LEVELS[key.scope]} | "
            f"{_ORIGINS[key.origin]} | {_cell(key.doc)}{_other_names(key)} |"
        )


def _other_names(key: ConfigKey) -> str:
    names = [f" Also written `{name}`." for name in key.synonyms]
    return "".join(names + [f" Old name: `{name}`." for name in key.deprecated])


def _table_of_ignored(keys: Iterable[ConfigKey]) -> Iterable[str]:
    yield "| why | keys |"
    yield "|---|---|"
    grouped: dict[str, dict[str, list[str]]] = {}
    for key in keys:
        name = f"`{key.name}*`" if key in IGNORED_PREFIXES else f"`{key.name}`"
        quiet = f" (no warning for `{', '.join(key.quiet)}`)" if key.quiet else ""
        origins = grouped.setdefault(_cell(key.doc), {})
        origins.setdefault(_ORIGINS[key.origin], []).append(f"{name}{quiet}")
    for doc, origins in grouped.items():
        names = (f"{origin}: {', '.join(found)}" for origin, found in origins.items())
        yield f"| {doc} | {'; '.join(names)} |"


def _client_tables() -> Iterable[str]:
    keys = [key for key in CLIENT_KEYS.values() if key.name not in TRANSLATED]
    yield "| setting | librdkafka's name | clients |"
    yield "|---|---|---|"
    for key in keys:
        if key.librdkafka is not None and key.librdkafka != key.name:
            yield f"| `{key.name}` | `{key.librdkafka}` | {key.users} |"
    translated = ", ".join(f"`{name}`" for name in TRANSLATED)
    yield f"| {translated} | settings of the same meaning | all |"
    yield ""
    yield "These pass under their own name:\n"
    for users in ("all", "consumer", "producer"):
        passed = [k.name for k in keys if k.librdkafka == k.name and k.users == users]
        yield f"- {users} clients: {', '.join(f'`{name}`' for name in passed)}"
    yield ""
    yield (
        "These reach the clients that srm reads and writes its own topics with, but do not steer "
        "the copy, which is answered with a warning:\n"
    )
    steering = _by_reason(key for key in keys if key.librdkafka is not None)
    yield from (f"- {names}: {reason}" for reason, names in steering.items())
    yield ""
    yield "These have no meaning here and are answered with a warning:\n"
    meaningless = _by_reason(key for key in keys if key.librdkafka is None)
    yield from (f"- {reason}: {names}" for reason, names in meaningless.items())


def _by_reason(keys: Iterable[ClientKey]) -> dict[str, str]:
    """Return the names of keys by the reason why they do not do what users expect."""
    grouped: dict[str, list[str]] = {}
    for key in keys:
        if key.reason:
            grouped.setdefault(key.reason, []).append(f"`{key.name}`")
    return {reason: ", ".join(names) for reason, names in grouped.items()}


def _cell(text: str | None) -> str:
    return (text or "").replace("|", "\\|")


def main(arguments: list[str]) -> None:
    """Write the page to the given file, by default into docs/, with the schema of orders there."""
    if write(lambda _: render(), DEFAULT_PATH, __doc__, arguments) == DEFAULT_PATH:
        SCHEMA_PATH.write_text(json.dumps(order_schema(), indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
