"""Settings of a flow as plain values, and which of them differ."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, Final

from srm.config.keys.keys import FLOW_KEYS
from srm.config.model import FlowConfig
from srm.config.secrets import HIDDEN, is_secret
from srm.domain.text.documents import JsonRecord

RESTARTED: Final = frozenset(
    {
        *(
            "enabled",
            "policy",
            "back",
            "both_enabled",
            "tasks_max",
            "isolation_level",
            "records",
            "data_loss_policy",
            "errors_tolerance",
            "admin_timeout_ms",
        ),
        *("offset_syncs_replication_factor", "heartbeats_replication_factor"),
        *("internal_replication_factor", "emit_offset_syncs_enabled", "offset_syncs_location"),
        *("refresh_topics_interval", "emit_heartbeats_enabled", "emit_heartbeats_interval"),
        *("metrics_interval", "metrics_windows_continuous"),
        *("max_bytes_per_second", "merge_bytes", "linger_ms"),
    }
)
"""Fields that slots, or threads of the driver, have from their start."""
_KEYS: Final = {key.field: key.name for key in FLOW_KEYS}


@dataclass(frozen=True, slots=True)
class SettingsRecord(JsonRecord):
    """Settings in force, without secrets, and those that they have replaced at ``time_ms``."""

    KIND = "settings"
    in_force: dict[str, Any]
    before: dict[str, Any]
    time_ms: int


def plain_settings(config: FlowConfig) -> dict[str, Any]:
    """Return the settings of a flow as JSON values by field, without secrets."""
    found: dict[str, Any] = {
        name: HIDDEN if is_secret(key_of(name)) else _plain(value)
        for name, value in asdict(config).items()
        if name != "flow"
    }
    found["policy"] = f"{type(config.policy).__name__} {config.policy.separator}"
    found["redirect"] = {
        name: _plain(value)
        for name, value in found["redirect"].items()
        # Some addresses are secrets themselves; a command may have some as arguments.
        if name not in {"webhook_url", "webhook_secret", "command"}
    }
    plain: dict[str, Any] = json.loads(json.dumps(found, default=str))
    return plain


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the fields whose values differ, with both values."""
    names = sorted({*before, *after})
    return {
        name: (before.get(name), after.get(name))
        for name in names
        if before.get(name) != after.get(name)
    }


def key_of(field: str) -> str:
    """Return the key of the properties file that sets a field."""
    return _KEYS.get(field, field.replace("_", "."))


def _plain(value: object) -> object:
    return value.total_seconds() if isinstance(value, timedelta) else value
