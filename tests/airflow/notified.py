"""A notifier as a user may configure one: it remembers what it was told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

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


class Broken(BaseNotifier):
    """Fails, as one whose server is away."""

    def notify(self, context: Any) -> None:  # noqa: ARG002
        """Fail."""
        raise OSError("no route to chat")
