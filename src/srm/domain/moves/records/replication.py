"""How far one partition is copied, and what keeps the rest of it from being copied."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from srm.domain.names.transactions import OpenTransaction
from srm.domain.text.amount import amount
from srm.domain.text.reason import Reason


@dataclass(frozen=True, slots=True)
class ReplicationFacts:
    """How far one partition of an original topic is copied from the source to the target.

    ``source_next`` is None where no position is known. ``log_end`` is the high watermark on the
    source read now, ``stable_end`` the last stable offset: what is between them is held back by
    ``transactions``, whatever producer wrote it (they are empty where srm may not see them, then
    ``hidden`` says why). ``stopped`` is the reason of a stopped partition, ``action`` what ends
    that, ``damage`` the reason of a map that cannot be used. ``lost`` are source offsets, still in
    the log, that were noted as never copied.
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
        """Source offset up to which the partition is copied."""
        return self.log_start if self.source_next is None else self.source_next

    @property
    def remaining(self) -> int:
        """Source offsets still to be copied; never data counted from log ends: markers."""
        return max(0, self.log_end - self.copied_to)

    @property
    def held_back(self) -> int:
        """The part of ``remaining`` that cannot be copied before transactions have ended."""
        end = self.log_end if self.stable_end is None else self.stable_end
        return max(0, self.log_end - max(end, self.copied_to))

    @property
    def halt_reason(self) -> Reason | None:
        """Why it is not copied further until somebody helps, None where it is, or has no need."""
        if self.stopped is None or not self.remaining or self.damage:
            return None
        return Reason(f"replication of {self.name} is stopped: {self.stopped}", self.action)

    def missing(self, target: str) -> Iterator[tuple[str, int]]:
        """Name what the target lacks of it, with the number of records, upper bounds."""
        if self.remaining:
            why = f", {self.held_back} held back by open transactions" if self.held_back else ""
            lacking = f"{self.name}: {amount(self.remaining, 'record')} missing on {target}"
            yield f"{lacking} from offset {self.copied_to} on{why}", self.remaining
        if self.lost:
            lost = f"{self.name}: {amount(self.lost, 'record')} never copied to {target}, as noted"
            yield lost, self.lost

    def transaction_reasons(self, source: str) -> Iterator[str]:
        """Say which transactions hold it back, and how they are ended."""
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
                f"{held}: a transaction is open from offset {self.stable_end} on, whose cannot be "
                f"seen{why}: 'kafka-transactions.sh --bootstrap-server HOST:PORT find-hanging' on "
                f"{source} helps, {accept}"
            )
