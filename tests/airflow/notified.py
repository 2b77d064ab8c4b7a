"""A notifier as a user may configure one: it remembers what it was told."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from airflow.sdk import Connection
from airflow.sdk.bases.notifier import BaseNotifier


class Notified(BaseNotifier):
    """Keeps each text with the channel it is for."""

    template_fields: Sequence[str] = ("text", "channel")
    told: ClassVar[list[tuple[str, str]]] = []

    def __init__(self, *, channel: str, text: str) -> None:
        super().__init__()
        self.channel, self.text = channel, text

    def notify(self, context: Any) -> None:  # noqa: ARG002
        """Keep the text."""
        self.told.append((self.channel, self.text))


class Posted(BaseNotifier):
    """Writes each text to the file that a connection of Airflow names, as one to a chat does."""

    template_fields: Sequence[str] = ("text",)

    def __init__(self, *, conn_id: str, text: str) -> None:
        super().__init__()
        self.conn_id, self.text = conn_id, text

    def notify(self, context: Any) -> None:  # noqa: ARG002
        """Append the text as a line."""
        with Path(Connection.get(self.conn_id).host or "").open("a") as posts:
            posts.write(f"{self.text}\n")


class Broken(BaseNotifier):
    """Fails, as one whose server is away."""

    def notify(self, context: Any) -> None:  # noqa: ARG002
        """Fail."""
        raise OSError("no route to chat")
