"""Writes the tables of keys in docs/configuration.md: ``python -m srm_lab.docs.configuration``."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

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
from srm.domain.moves.routing import RedirectOrder
from srm.domain.text.documents import adapter
from srm_lab.docs.page import write

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

_MARKED: Final = re.compile(r"(<!-- Table of (\w+) -->)\n.*?(<!-- End -->)", re.DOTALL)


def with_tables(page: str) -> str:
    """Return the page with current tables between its marks."""
    tables = {
        "keys": _key_table((*FILE_KEYS, *FLOW_KEYS, *MOVE_KEYS, *RECORD_KEYS, *CLASS_KEYS)),
        "ignored": _table_of_ignored((*IGNORED_KEYS, *IGNORED_PREFIXES)),
        "clients": _client_tables(),
    }
    return _MARKED.sub(lambda at: "\n".join((at[1], *tables[at[2]], at[3])), page)


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
        "These reach only applications that use the file (`srm.client`, `srm follow`). srm copies, "
        "and keeps its own topics, without them, which is answered with a warning:\n"
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


def order_schema() -> dict[str, Any]:
    return adapter(RedirectOrder).json_schema(mode="serialization")


def main(arguments: list[str]) -> None:
    """Write the tables into the given page, by default that in docs/, with the schema of orders."""
    made = write(lambda at: with_tables(at.read_text("utf-8")), DEFAULT_PATH, __doc__, arguments)
    if made == DEFAULT_PATH:
        SCHEMA_PATH.write_text(json.dumps(order_schema(), indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
