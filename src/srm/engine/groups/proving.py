"""Proof of translations by records: of any, and of the checkpoints of one emission.

It sends a bounded number of requests. They read the next record on both sides of each place, the
copy's before the original's. New records are then missing from the copy, never from the original.
Undecided places are checked again, with the pairs of offsets in the map.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from srm.config.model import FlowConfig
from srm.domain.groups.checkpoints import CheckpointOutcome, FactsOf
from srm.domain.groups.proof import (
    PROVEN,
    Disproof,
    Evidence,
    FlowProof,
    Judgement,
    Pair,
    TranslationClaim,
    Verdict,
    by_flow,
    choose,
    pair_problem,
    unread_pair,
)
from srm.domain.groups.translation import Direction
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.text.amount import Reason
from srm.domain.text.documents import decode_or_none, join, split
from srm.domain.verification.compared_record import ComparedRecord
from srm.engine.cluster_ports import Cluster, Place, Topics, TopicSetting, cluster_ids
from srm.engine.control.control_topics import create_control_topics
from srm.engine.ports import FlowContext
from srm.errors import NotLoadedError, SrmError

log = logging.getLogger(__name__)

_NONE = Verdict("unproven")
Key = tuple[Direction, TopicPartition, int, int]
Records = Mapping[Place, ComparedRecord | None]
Where = tuple[str, TopicPartition]
"""A group and a partition of its commits."""


def verdicts_of(
    context: FlowContext, claims: Mapping[Where, TranslationClaim]
) -> dict[Where, Verdict]:
    """Prove translations by records on both sides, each once; unproven if a side is unreadable."""
    by_kind = defaultdict[Direction | None, dict[Key, TranslationClaim]](dict)
    verdicts: dict[Key, Verdict] = {}
    for claim in claims.values():
        kind = None if claim.facts.back is not None else claim.facts.direction
        by_kind[kind][claim.key] = claim
    for kind, some in by_kind.items():
        try:
            if kind is None:
                verdicts |= _prove_on_one_name(context, some)
            else:
                verdicts |= _prove(context, kind, some)
        except SrmError as error:
            verdicts |= dict.fromkeys(some, Verdict("unproven", str(error)))
    return {where: verdicts[claim.key] for where, claim in claims.items()}


def _prove_on_one_name(
    context: FlowContext, claims: Mapping[Key, TranslationClaim]
) -> dict[Key, Verdict]:
    """Prove by the next pair of each flow; what that does not prove may still be right."""
    verdicts, pairs = dict[Key, Verdict](), dict[Key, list[tuple[TranslationClaim, Pair]]]()
    for key, claim in claims.items():
        try:
            found = [(one, unread_pair(one)) for one in by_flow(claim)]
        except NotLoadedError as error:
            verdicts[key] = Verdict("unproven", str(error))
        else:
            pairs[key] = [(one, pair) for one, pair in found if pair is not None]
    known = [_places(*one) for some in pairs.values() for one in some]
    source = context.source.first_records({place for place, _ in known}, committed=False)
    target = context.target.first_records({place for _, place in known}, committed=False)
    for key, some in pairs.items():
        problems = []
        for one, pair in some:
            here, there = _places(one, pair)
            records = source.get(here), target.get(there)
            is_forward = one.facts.direction == "forward"
            problems.append(pair_problem(one, pair, records if is_forward else records[::-1]))
        why = "; ".join(filter(None, problems)) if some else "neither flow has copied a record"
        verdicts[key] = Verdict("unproven", why) if why else PROVEN
    return verdicts


def _places(claim: TranslationClaim, pair: Pair) -> tuple[Place, Place]:
    """Return the places of a pair on the source and on the target."""
    found = (claim.original[0], pair.original), (claim.copy[0], pair.copy)
    return found if claim.facts.direction == "forward" else found[::-1]


def _prove(
    context: FlowContext, direction: Direction, claims: Mapping[Key, TranslationClaim]
) -> dict[Key, Verdict]:
    is_back = direction == "reverse"
    ends = (context.target, context.source) if is_back else (context.source, context.target)
    committed = is_back or context.config.isolation_level == "read_committed"
    verdicts = _Sides(context.config, *ends, committed).judge(claims)
    doubtful = {key: claims[key] for key, found in verdicts.items() if found.state == "disproved"}
    if committed and doubtful:  # others may have copied aborted records, or the opposite flow
        found = _Sides(context.config, *ends, committed=False).judge(doubtful)
        verdicts |= {key: one for key, one in found.items() if one.state == "proven"}
    return verdicts


@dataclass(frozen=True)
class _Sides:
    """The clusters of originals and copies, and the isolation level for originals."""

    config: FlowConfig
    originals: Cluster
    copies: Cluster
    committed: bool

    def judge(self, claims: Mapping[Key, TranslationClaim]) -> dict[Key, Verdict]:
        copies = self.copies.first_records({claim.copy for claim in claims.values()})
        originals = self._originals({claim.original for claim in claims.values()})
        verdicts: dict[Key, Verdict] = {}
        unclear = {}
        for key, claim in claims.items():
            if claim.copy not in copies or claim.original not in originals:
                missing = claim.copy if claim.copy not in copies else claim.original
                why = f"no record can be read at {missing[1]} of {missing[0]}"
                verdicts[key] = Verdict("unproven", why)
                continue
            one = Judgement(claim, originals[claim.original], copies[claim.copy])
            if one.is_plain_proof():
                verdicts[key] = PROVEN
            else:
                unclear[key] = one
        return verdicts | (self._judge_again(unclear) if unclear else {})

    def _judge_again(self, unclear: Mapping[Key, Judgement]) -> dict[Key, Verdict]:
        """Check the pairs around the places, again copies first.

        Facts that may explain a difference are read after the records, so that they cover them.
        """
        wanted_originals, wanted_copies = set[Place](), set[Place]()
        for one in unclear.values():
            left, right = one.wanted_records()
            wanted_originals |= {(one.claim.original[0], offset) for offset in left}
            wanted_copies |= {(one.claim.copy[0], offset) for offset in right}
        copies = _by_partition(self.copies.first_records(wanted_copies))
        originals = _by_partition(self._originals(wanted_originals))
        ours = {one.claim.original[0] for one in unclear.values()}
        theirs = {one.claim.copy[0] for one in unclear.values()}
        starts, there = self.originals.log_starts(ours), self.copies.log_starts(theirs)
        compacted = _compacted_topics(self.originals, ours)
        compacted_there = _compacted_topics(self.copies, theirs)
        clusters = cluster_ids(self.config.records, self.originals, self.copies)
        verdicts = {}
        for key, one in unclear.items():
            here, place = one.claim.original[0], one.claim.copy[0]
            evidence = Evidence(
                originals.get(here, {}),
                copies.get(place, {}),
                starts.get(here, 0),
                there.get(place, 0),
                here.topic in compacted,
                place.topic in compacted_there,
                self.config.transform(clusters, here.topic, place.topic).drops,
            )
            verdicts[key] = one.verdict(evidence)
        return verdicts

    def _originals(self, places: Collection[Place]) -> Records:
        return self.originals.first_records(places, committed=self.committed)


def _by_partition(records: Records) -> dict[TopicPartition, dict[int, ComparedRecord | None]]:
    found = defaultdict[TopicPartition, dict[int, ComparedRecord | None]](dict)
    for (partition, offset), record in records.items():
        found[partition][offset] = record
    return found


def _compacted_topics(cluster: Cluster, partitions: Collection[TopicPartition]) -> frozenset[str]:
    settings = cluster.topic_settings({partition.topic for partition in partitions})
    policies = {name: of.get("cleanup.policy", TopicSetting()) for name, of in settings.items()}
    return frozenset(name for name, policy in policies.items() if "compact" in policy.value)


def read_proof(target: Cluster, flow: Flow) -> FlowProof | None:
    """Return the last proof of a flow; None if it is missing or damaged."""
    rows, key = target.compacted_topic(internal_topics.MOVES).read_stamped(), FlowProof.key(flow)
    text = join({of: row.value for of, row in rows.items()}).get(key)
    proof = decode_or_none(text, FlowProof.decode)
    if proof is None or not rows[key].by_broker:
        return proof
    return replace(proof, time_ms=rows[key].timestamp_ms - proof.took_ms)


def keep_proof(context: FlowContext, proof: FlowProof) -> None:
    """Store a proof; a failure is logged, as the next emission proves again."""
    config, target = context.config, context.target
    try:
        replicas = config.internal_replication_factor
        create_control_topics(target, replicas, [internal_topics.MOVES])
        topic = target.compacted_topic(internal_topics.MOVES)
        topic.write(split(FlowProof.key(config.flow), proof.value(), topic.read))
    except SrmError as error:
        log.warning("%s: cannot store the proof: %s", config.flow, error)


@dataclass(frozen=True)
class Survey:
    """Translations of the selected groups, errors by group, and the topics of both clusters."""

    outcomes: tuple[CheckpointOutcome, ...]
    errors: Mapping[str, Reason]
    facts_of: FactsOf
    queried_ms: Mapping[str, int]
    on_source: Topics
    on_target: Topics

    @property
    def groups(self) -> set[str]:
        return {outcome.group for outcome in self.outcomes}


SurveyOf = Callable[[Collection[str]], Survey]


@dataclass(frozen=True, slots=True)
class ProofShare:
    """Share of one run: ``budget`` places, starting with the groups after ``cursor``.

    Groups with a wrong checkpoint in the last run (``suspects``) are always included.
    """

    budget: int
    cursor: str = ""
    suspects: frozenset[str] = frozenset()

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
        return ProofShare(max(1, self.budget * groups // total), self.cursor, self.suspects)


def prove_emission(
    context: FlowContext, found: Survey, share: ProofShare, again: SurveyOf, began_ms: int
) -> tuple[FlowProof, set[Where]]:
    """Prove the translations of a sample of groups; return checkpoints to withhold, too.

    A wrong translation is made ``again`` and checked before it counts as disproved, because a log
    may have been truncated or re-created in between. Then all checkpoints of its partition are
    withheld, except proven ones.
    """
    by_group = defaultdict[str, list[CheckpointOutcome]](list)
    for outcome in found.outcomes:
        by_group[outcome.group].append(outcome)
    groups = sorted(by_group)
    sizes = {name: sum(o.checkpoint is not None for o in by_group[name]) for name in groups}
    sample = choose(groups, sizes, share.cursor, share.budget) if share.budget else []
    looked = sorted({*sample, *(share.suspects & by_group.keys() if share.budget else ())})
    verdicts = _verdicts(context, found, [o for name in looked for o in by_group[name]])
    suspects = {where for where, one in verdicts.items() if one.state == "disproved"}
    disproved: dict[Where, Disproof] = {}
    if suspects:
        disproved = _look_again(context, suspects, again)
        for where in suspects - disproved.keys():
            verdicts[where] = Verdict("unproven", "a second check did not find it wrong")
    wrong = {partition for _, partition in disproved}
    withheld = suspects | {
        (o.group, o.upstream)
        for o in found.outcomes
        if o.upstream in wrong and verdicts.get((o.group, o.upstream), _NONE).state != "proven"
    }
    unproven = {name: why for name in looked if (why := _obstacle(by_group[name], verdicts))}
    proof = FlowProof(
        flow=str(context.config.flow),
        time_ms=began_ms,
        took_ms=max(0, context.now_ms() - began_ms),
        groups=len(groups),
        sampled=len(looked),
        proven=len(looked) - len(unproven),
        unproven=unproven,
        disproved=tuple(disproved[where] for where in sorted(disproved)),
        withheld=len(withheld),
        unread=tuple(sorted(found.errors)),
        cursor=sample[-1] if sample else share.cursor,
        skipped="" if share.budget else f"{context.config.flow}.checkpoints.proof.budget is 0",
    )
    return proof, withheld


def _verdicts(
    context: FlowContext, found: Survey, outcomes: Iterable[CheckpointOutcome]
) -> dict[Where, Verdict]:
    claims = dict[Where, TranslationClaim]()
    for outcome in outcomes:
        reached, offset = outcome.reached, outcome.downstream_offset
        if outcome.checkpoint and outcome.direction and reached is not None and offset is not None:
            facts = found.facts_of(outcome.upstream, outcome.direction)
            claim = TranslationClaim(facts, reached, offset, skipped=outcome.total_skipped > 0)
            claims[outcome.group, outcome.upstream] = claim
    return verdicts_of(context, claims)


def _look_again(
    context: FlowContext, suspects: Collection[Where], again: SurveyOf
) -> dict[Where, Disproof]:
    surveyed = again(sorted({group for group, _ in suspects}))
    outcomes = [o for o in surveyed.outcomes if (o.group, o.upstream) in suspects]
    verdicts = _verdicts(context, surveyed, outcomes)
    return {
        (o.group, o.upstream): Disproof(
            *(o.group, str(o.upstream), o.reached or 0),
            *(str(o.downstream), o.downstream_offset or 0, found.reason),
        )
        for o in outcomes
        if (found := verdicts.get((o.group, o.upstream), _NONE)).state == "disproved"
    }


def _obstacle(outcomes: Sequence[CheckpointOutcome], verdicts: dict[Where, Verdict]) -> str:
    for outcome in outcomes:
        if outcome.state == "not-selected":
            continue
        verdict = verdicts.get((outcome.group, outcome.upstream))
        if verdict is None:
            return f"{outcome.upstream} has no translation, {outcome.state}: {outcome.reason}"
        if verdict.state != "proven":
            return f"{outcome.upstream}: {verdict.reason}"
    return ""
