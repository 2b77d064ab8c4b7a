"""Keys that say how moves run in Airflow; each is a setting of its flow."""

from __future__ import annotations

from typing import Final

from srm.config.config_key import our_key

AIRFLOW_KEYS: Final = (
    our_key(
        "failover.approval",
        "choice",
        "unplanned",
        "Which moves from the flow's source to its target wait in Airflow for a person's approval "
        "before anybody is held. The form may ask for one where this does not.",
        choices=("never", "unplanned", "always"),
    ),
    our_key(
        "failover.alert.seconds",
        "seconds",
        "60",
        "How long a step of a move in Airflow (approval, wait, verify) may wait before the "
        "notifier is told, and is told again.",
        attribute="failover_alert_after",
    ),
    our_key(
        "failover.notifier",
        "string",
        "",
        "Class of an Airflow notifier that is told of moves in Airflow (docs/dags.md), such as "
        "`airflow.providers.slack.notifications.slack.SlackNotifier`. Default: nobody is told.",
    ),
    our_key(
        "failover.notifier.arguments",
        "string",
        "{}",
        "Its arguments, a JSON object; `{{ srm.text }}` in them is the message. Secrets belong "
        "into an Airflow connection that it names.",
    ),
    our_key(
        "failover.dry.run.schedule",
        "cron",
        None,
        "When a move from the flow's source to its target is planned without doing it (cron, UTC), "
        "such as `0 6 * * *`; the run is red when the move would be refused. Default: never.",
    ),
)
