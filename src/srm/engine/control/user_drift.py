"""Quotas and SCRAM users that the source has and the target lacks; srm changes neither.

Passwords cannot be read, and limits depend on the brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from srm.domain.text.amount import amount, some
from srm.engine.cluster_ports import Cluster, QuotaEntity
from srm.engine.control.topic_plan import SyncFinding
from srm.errors import AuthorizationError, ConfigError

_T = TypeVar("_T")
_Quotas = Mapping[QuotaEntity, Mapping[str, float]]


def compare_users(
    source: Cluster, target: Cluster
) -> tuple[tuple[SyncFinding, ...], tuple[str, ...]]:
    """Return differences, and what srm may not compare or the brokers are too old for."""
    findings: list[SyncFinding] = []
    notes: list[str] = []

    def read(what: str, call: Callable[[Cluster], _T]) -> tuple[_T, _T] | None:
        try:
            return call(source), call(target)
        except (AuthorizationError, ConfigError) as error:
            notes.append(f"{what} are not compared: {error}")
            return None

    if limits := read("quotas", lambda cluster: cluster.quotas()):
        findings += _quota_drift(*limits, source.alias, target.alias)
    if users := read("SCRAM users", lambda cluster: cluster.scram_users()):
        missing = sorted(users[0] - users[1])
        if missing:
            verb = "exists" if len(missing) == 1 else "exist"
            text = f"{amount(len(missing), 'SCRAM user')} {verb} only on {source.alias}: "
            action = f"create them on {target.alias} before clients move"
            findings.append(SyncFinding("users", text + some(missing), action))
    return tuple(findings), tuple(notes)


def _quota_drift(here: _Quotas, there: _Quotas, source: str, target: str) -> Iterator[SyncFinding]:
    for entity in sorted({*here, *there}, key=_name):
        mine, other = here.get(entity, {}), there.get(entity, {})
        for limit in sorted({*mine, *other}):
            if mine.get(limit) != other.get(limit):
                text = f"{limit} is {_text(mine.get(limit))} on {source}, "
                text += f"{_text(other.get(limit))} on {target}"
                yield SyncFinding(f"quota of {_name(entity)}", text, "kafka-configs.sh changes it")


def _name(entity: QuotaEntity) -> str:
    return ", ".join(f"{kind} {name or '(default)'}" for kind, name in entity)


def _text(limit: float | None) -> str:
    return "not set" if limit is None else f"{limit:.15g}"
