"""Proof of the translations of all moving groups, by the records on both clusters."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from srm.domain.groups.proof import TranslationClaim, Verdict
from srm.domain.moves.gate.finding import Finding
from srm.domain.moves.records.request import MoveRequest
from srm.domain.names.topics import TopicPartition
from srm.domain.text.reason import Reason
from srm.engine.groups.proving import prove
from srm.engine.moves.control.move_records import MoveContext
from srm.engine.moves.planning.facts import MoveFacts
from srm.engine.moves.planning.reading import read_facts

Verdicts = Mapping[tuple[str, TopicPartition], Verdict]
"""By group and partition on the source, for partitions with a translation."""


def prove_groups(context: MoveContext, request: MoveRequest, facts: MoveFacts) -> Verdicts:
    """Return the verdicts on the translations of all groups; disproved ones are checked twice.

    Raises:
        SrmError: a cluster does not answer.
    """
    verdicts = _judge(context, facts, facts.groups)
    suspects = {where for where, found in verdicts.items() if found.state == "disproved"}
    if suspects:
        groups = sorted({group for group, _ in suspects})
        # A log may have been truncated or recreated since the first look.
        again = _judge(context, read_facts(context, request, facts.topics, groups), groups)
        verdicts |= {where: again.get(where, _MOVED) for where in suspects}
    return verdicts


def proof_problems(verdicts: Verdicts) -> Iterator[Finding]:
    """Yield a blocking finding for each wrong translation."""
    for (group, partition), found in sorted(verdicts.items(), key=lambda item: item[0]):
        if found.state == "disproved":
            reason = Reason.saying(
                f"group {group}, {partition}: the records show that its translation is wrong, "
                f"{found.reason}",
                "compare the copies with srm verify, and restart the replicator, which finds the "
                "records again in both logs",
            )
            yield Finding("proof", reason)


def _judge(
    context: MoveContext, facts: MoveFacts, groups: Collection[str]
) -> dict[tuple[str, TopicPartition], Verdict]:
    claims: dict[tuple[str, TopicPartition], TranslationClaim] = {}
    for group in groups:
        for partition, found, translation in facts.translations(group):
            offset, reached = translation.offset, translation.reached
            if offset is not None and reached is not None:
                skipped = translation.total_skipped > 0
                claims[group, partition] = TranslationClaim(found, reached, offset, skipped=skipped)
    verdicts = prove(context.forward, claims.values())
    return {where: verdicts[claim.key] for where, claim in claims.items()}


_MOVED = Verdict("unproven", "the group has committed since")
