"""Proof of the checkpoints of one emission, within its budget; wrong ones are withheld."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from srm.domain.groups.checkpoints import CheckpointOutcome, FactsOf
from srm.domain.groups.proof import TranslationClaim, Verdict
from srm.domain.groups.proof_records import Disproof, FlowProof, choose
from srm.domain.names.topics import TopicPartition
from srm.engine.groups.proving import prove
from srm.engine.ports import FlowContext

Translations = tuple[Sequence[CheckpointOutcome], FactsOf]
"""Translations of commits, and the facts that they are based on."""
_Where = tuple[str, TopicPartition]


@dataclass(frozen=True, slots=True)
class ProofShare:
    """Share of one run: ``budget`` places, starting with the groups after ``cursor``.

    ``doubted`` are groups with a wrong checkpoint in the last run; they are always included.
    """

    budget: int
    cursor: str = ""
    doubted: frozenset[str] = frozenset()

    @classmethod
    def after(cls, budget: int, last: FlowProof | None) -> ProofShare:
        """Return a share that continues after the last emission."""
        if last is None:
            return cls(budget)
        return cls(budget, last.cursor, frozenset(one.group for one in last.disproved))

    def of(self, groups: int, total: int) -> ProofShare:
        """Return the share of a part of all groups, at least one place."""
        if not self.budget or not total:
            return self
        part = max(1, self.budget * groups // total)
        return ProofShare(part, self.cursor, self.doubted)


@dataclass(frozen=True)
class ProvenEmission:
    """Proof of an emission, and withheld checkpoints by group and partition."""

    proof: FlowProof
    withheld: frozenset[_Where] = field(default_factory=frozenset)


def prove_emission(
    context: FlowContext,
    translations: Translations,
    unread: Collection[str],
    share: ProofShare,
    again: Callable[[Collection[str]], Translations],
    began_ms: int,
) -> ProvenEmission:
    """Prove the translations of a sample of groups.

    A wrong translation is repeated and checked again before it counts as disproved, because a log
    may have been truncated or re-created in between. Then all checkpoints of its partition are
    withheld, except proven ones.

    Args:
        context: the flow.
        translations: translations of all emitted groups.
        unread: groups that could not be read.
        share: the places to check.
        again: translates the commits of some groups again.
        began_ms: start of the reads of commits, epoch milliseconds.
    """
    outcomes, facts_of = translations
    by_group = defaultdict[str, list[CheckpointOutcome]](list)
    for outcome in outcomes:
        by_group[outcome.group].append(outcome)
    groups = sorted(by_group)
    sizes = {name: sum(o.checkpoint is not None for o in by_group[name]) for name in groups}
    sample = choose(groups, sizes, share.cursor, share.budget) if share.budget else []
    looked = sorted({*sample, *(share.doubted & by_group.keys() if share.budget else ())})
    verdicts = verdicts_of(context, [o for name in looked for o in by_group[name]], facts_of)
    suspects = {where for where, found in verdicts.items() if found.state == "disproved"}
    disproved: dict[_Where, Disproof] = {}
    if suspects:
        disproved = _look_again(context, suspects, again)
        for where in suspects - disproved.keys():
            verdicts[where] = Verdict("unproven", "a second check did not find it wrong")
    wrong = {partition for _, partition in disproved}
    withheld = suspects | {
        (o.group, o.upstream)
        for o in outcomes
        if o.upstream in wrong and verdicts.get((o.group, o.upstream), _NONE).state != "proven"
    }
    unproven = {name: why for name in looked if (why := _why_not(by_group[name], verdicts))}
    return ProvenEmission(
        FlowProof(
            str(context.config.flow),
            began_ms,
            max(0, context.now_ms() - began_ms),
            groups=len(groups),
            sampled=len(looked),
            proven=len(looked) - len(unproven),
            unproven=unproven,
            disproved=tuple(disproved[where] for where in sorted(disproved)),
            withheld=len(withheld),
            unread=tuple(sorted(unread)),
            cursor=sample[-1] if sample else share.cursor,
            skipped="" if share.budget else f"{context.config.flow}.checkpoints.proof.budget is 0",
        ),
        frozenset(withheld),
    )


def claim_of(outcome: CheckpointOutcome, facts_of: FactsOf) -> TranslationClaim | None:
    """Return the claim of an outcome, None without a checkpoint."""
    reached, offset = outcome.reached, outcome.downstream_offset
    if outcome.checkpoint is None or outcome.direction is None or reached is None or offset is None:
        return None
    facts = facts_of(outcome.upstream, outcome.direction)
    return TranslationClaim(facts, reached, offset, skipped=outcome.total_skipped > 0)


def verdicts_of(
    context: FlowContext, outcomes: Sequence[CheckpointOutcome], facts_of: FactsOf
) -> dict[_Where, Verdict]:
    """Prove outcomes; those without a checkpoint have no verdict."""
    claims = {
        (outcome.group, outcome.upstream): claim
        for outcome in outcomes
        if (claim := claim_of(outcome, facts_of)) is not None
    }
    found = prove(context, claims.values())
    return {where: found[claim.key] for where, claim in claims.items()}


def _look_again(
    context: FlowContext,
    suspects: Collection[_Where],
    again: Callable[[Collection[str]], Translations],
) -> dict[_Where, Disproof]:
    outcomes, facts_of = again(sorted({group for group, _ in suspects}))
    doubted = [o for o in outcomes if (o.group, o.upstream) in suspects]
    verdicts = verdicts_of(context, doubted, facts_of)
    return {
        (o.group, o.upstream): Disproof(
            o.group,
            str(o.upstream),
            o.reached or 0,
            str(o.downstream),
            o.downstream_offset or 0,
            found.reason,
        )
        for o in doubted
        if (found := verdicts.get((o.group, o.upstream), _NONE)).state == "disproved"
    }


def _why_not(outcomes: Sequence[CheckpointOutcome], verdicts: dict[_Where, Verdict]) -> str:
    """Return why a group is not proven, empty if it is."""
    for outcome in outcomes:
        if outcome.state == "not-selected":
            continue
        verdict = verdicts.get((outcome.group, outcome.upstream))
        if verdict is None:
            return f"{outcome.upstream} has no translation, {outcome.state}: {outcome.reason}"
        if verdict.state != "proven":
            return f"{outcome.upstream}: {verdict.reason}"
    return ""


_NONE = Verdict("unproven")
