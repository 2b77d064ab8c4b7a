"""Replication state of one partition, and the reasons why the rest is not copied."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from srm.domain.names.transactions import OpenTransaction
from srm.domain.text.amount import amount
from srm.domain.text.reason import Reason


@dataclass(frozen=True, slots=True)
class ReplicationFacts:
    """Replication state of one partition of an original topic from the source to the target.

    ``source_next``: None if no position is known.
    ``log_end``: present high watermark on the source.
    ``stopped``, ``action``: reason why the partition is stopped, and the remedy.
    ``stable_end``: last stable offset; ``transactions`` hold back the records from there on.
    ``hidden``: reason why srm may not see ``transactions``, which are empty then.
    ``damage``: reason why the offset map cannot be used.
    ``lost``: source offsets still in the log that were noted as never copied.
    """

    topic: str
    partition: int
    source_next: int | None
    log_start: int
    log_end: int
    stopped: str | None = None
    stable_end: int | None = None
    transactions: tuple[OpenTransaction, ...] = ()
    hidden: str = ""
    damage: str = ""
    lost: int = 0
    action: str = ""

    @property
    def name(self) -> str:
        """Topic and partition, for messages."""
        return f"{self.topic}-{self.partition}"

    @property
    def copied_to(self) -> int:
        """Source offset up to which it is copied."""
        return self.log_start if self.source_next is None else self.source_next

    @property
    def remaining(self) -> int:
        """Source offsets still to be copied, including transaction markers."""
        return max(0, self.log_end - self.copied_to)

    @property
    def held_back(self) -> int:
        """Part of ``remaining`` that open transactions hold back."""
        end = self.log_end if self.stable_end is None else self.stable_end
        return max(0, self.log_end - max(end, self.copied_to))

    @property
    def halt_reason(self) -> Reason | None:
        """Reason why it stays uncopied until an operator acts; None if it is or will be copied."""
        if self.stopped is None or not self.remaining or self.damage:
            return None
        return Reason(f"replication of {self.name} is stopped: {self.stopped}", self.action)

    def missing(self, target: str) -> Iterator[tuple[str, int]]:
        """Yield the gaps of the target with upper bounds of their records."""
        if self.remaining:
            why = f", {self.held_back} held back by open transactions" if self.held_back else ""
            lacking = f"{self.name}: {amount(self.remaining, 'record')} missing on {target}"
            yield f"{lacking} from offset {self.copied_to} on{why}", self.remaining
        if self.lost:
            lost = f"{self.name}: {amount(self.lost, 'record')} never copied to {target}, as noted"
            yield lost, self.lost

    def transaction_reasons(self, source: str) -> Iterator[str]:
        """Yield the transactions that hold it back, with the command that ends them."""
        held = f"{amount(self.held_back, 'record')} of {self.name} on {source} cannot be copied"
        accept = (
            "or move without them: --accept-open-transactions (in the form: "
            "accept_open_transactions)"
        )
        for each in self.transactions:
            yield (
                f"{held}: a transaction is open from offset {each.first_offset} on ({each.owner}): "
                f"end it, on {source} with {each.command!r}, {accept}"
            )
        if not self.transactions:
            why = f" ({self.hidden})" if self.hidden else ""
            yield (
                f"{held}: a transaction is open from offset {self.stable_end} on, its owner is not "
                f"visible{why}: find it with 'kafka-transactions.sh --bootstrap-server HOST:PORT "
                f"find-hanging' on {source}, {accept}"
            )
