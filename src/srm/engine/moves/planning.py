"""Plan of a move: where its groups continue, and the conditions that block its start."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from srm.domain.flow_state.liveness_thresholds import ECHO_S
from srm.domain.flow_state.replication_records import SLOT_PREFIX
from srm.domain.groups.proof import TranslationClaim, Verdict
from srm.domain.moves.findings import surrounding_warnings
from srm.domain.moves.plan import MovePlan
from srm.domain.moves.request import MoveRequest
from srm.domain.moves.routing import FenceKind, RedirectKind, subjects_of
from srm.domain.text.amount import Reason, some
from srm.engine.cluster_ports import Cluster
from srm.engine.flows.supervision import down_reasons, driver_status, slot_statuses, state_topic
from srm.engine.groups.proving import Where, verdicts_of
from srm.engine.moves.effects import require_in_force
from srm.engine.moves.facts import MoveFacts, Outlook
from srm.engine.moves.findings import (
    TAKE_OVER,
    fence_problems,
    group_problems,
    group_warnings,
    halted_problems,
    loss_warnings,
    nothing_to_move,
    redirect_problems,
    replication_warnings,
    routing_conflicts,
    surroundings,
    topic_problems,
    unsettled_problems,
)
from srm.engine.moves.reading import (
    MoveScope,
    groups_on_source,
    originals,
    read_facts,
    read_outlook,
    topics_to_move,
)
from srm.engine.moves.records import (
    ControlChange,
    MoveContext,
    MoveStore,
    config_fingerprint,
    ensure_topics,
)
from srm.engine.moves.registers import Registers, homes_to_move, sides_of, transact
from srm.errors import ConflictError, UsageError

_REPLACEABLE: Final = frozenset({"planned", "released"})
Verdicts = Mapping[Where, Verdict]
"""By group and partition on the source, for partitions with a translation."""
_MOVED = Verdict("unproven", "the group has committed since")


def plan(
    context: MoveContext, request: MoveRequest, move_id: str | None = None, *, dry_run: bool = False
) -> MovePlan:
    """Plan a move and store the plan under its id; the first step, safe to repeat.

    ``move_id``: the same again replaces the plan; if the move has continued, the stored one is
    returned. ConflictError: it belongs to another request, or to a move that has ended and is
    superseded.
    ``dry_run``: only compute; nothing is written to either cluster.
    """
    if request.flow != context.forward.config.flow:
        raise UsageError(
            f"the move is {request.flow}, but the given flow is {context.forward.config.flow}"
        )
    if dry_run:
        return compute_plan(context, request, move_id or new_move_id(context, request))
    ensure_topics(context, unplanned=request.is_unplanned)
    store = MoveStore(context)
    if move_id is not None:
        known = store.find_plan(move_id)
        if known is not None and known.request != request:
            raise ConflictError(
                f"move {move_id!r} was planned for another request: choose another id, or repeat "
                f"the same request"
            )
        if known is not None and (at := store.progress(move_id)).step not in _REPLACEABLE:
            require_in_force(context, known, at)
            return known
    return _keep(context, compute_plan(context, request, move_id or new_move_id(context, request)))


def _keep(context: MoveContext, fresh: MovePlan) -> MovePlan:
    """Store a plan, unless an earlier one has held clients while it was computed."""
    change = ControlChange(documents={f"plan:{fresh.move_id}": fresh.value()})

    def body(registers: Registers) -> MovePlan:
        sides = sides_of(fresh.request)
        registers.require(*sides)
        known = registers.plan(fresh.move_id)
        if known is not None and registers.progress(fresh.move_id).step not in _REPLACEABLE:
            return known
        for side in sides:
            registers.write(side, change)
        return fresh

    return transact(context, f"plan of move {fresh.move_id}", body)


def new_move_id(context: MoveContext, request: MoveRequest) -> str:
    """Return an id that sorts by time and names operation and clusters."""
    time = datetime.fromtimestamp(context.now_ms() / 1000, UTC).strftime("%Y%m%dT%H%M%S")
    return f"{time}-{request.operation}-{request.source}-{request.target}-{secrets.token_hex(2)}"


@dataclass(frozen=True)
class Findings:
    """One look at what moves: facts, conditions, proofs, and the outlook for a lost source.

    ``found``: a reason blocks the start of the move, a text is a warning.
    ``halted``: reasons against waiting for the copy.
    """

    facts: MoveFacts
    found: tuple[Reason | str, ...]
    halted: tuple[Reason, ...] = ()
    verdicts: Verdicts = field(default_factory=dict)
    outlook: Outlook | None = None

    @property
    def problems(self) -> tuple[Reason, ...]:
        """The reasons that waiting does not remove."""
        return tuple(each for each in self.found if isinstance(each, Reason))

    @property
    def blocking(self) -> tuple[Reason, ...]:
        """All reasons that block the start of the move."""
        return (*self.problems, *self.halted)

    @property
    def warnings(self) -> tuple[str, ...]:
        """The other conditions."""
        return tuple(each for each in self.found if isinstance(each, str))


def compute_plan(context: MoveContext, request: MoveRequest, move_id: str) -> MovePlan:
    """Compute the plan from both clusters, an unplanned one with a forecast from the target."""
    seen = findings(context, request, move_id)
    facts, now_ms = seen.facts, context.now_ms()
    around = surrounding_warnings(request, facts.topics, surroundings(context, facts))
    return MovePlan(
        move_id=move_id,
        created_ms=now_ms,
        request=request,
        topics=facts.topics,
        groups=facts.plans,
        blocking=tuple(each.text for each in seen.blocking),
        warnings=(*around, *seen.warnings),
        fingerprint=config_fingerprint(context),
        forecast=seen.outlook.forecast(now_ms) if seen.outlook else None,
        redirect=redirectors_of(context, request),
        fence=fence_of(context, request),
        homes=homes_to_move(request, facts.routing.merge),
    )


def findings(
    context: MoveContext, request: MoveRequest, move_id: str, chosen: MoveScope | None = None
) -> Findings:
    """Look at what moves, or an earlier look chose; list what blocks or deserves a warning."""
    if request.is_unplanned:
        return _after_loss(context, request, move_id, chosen)
    return _of_both(context, request, move_id, chosen)


def _of_both(
    context: MoveContext, request: MoveRequest, move_id: str, chosen: MoveScope | None
) -> Findings:
    topics = topics_to_move(context, request, context.target.topics())
    chosen = chosen or groups_on_source(context, request, topics)
    facts = read_facts(context, request, topics, chosen.groups)
    selected = originals(facts.source.topics, context.forward.config)
    verdicts = prove_groups(context, request, facts)
    down = _down(context, facts)
    found = (
        *redirect_problems(context.forward, redirectors_of(context, request)),
        *fence_problems(context.source, fence_of(context, request)),
        *unsettled_problems(context.forward),
        *topic_problems(context.forward.config, facts),
        *written_together(context.source, request, topics, selected),
        *map(Reason, routing_conflicts(facts, request, move_id).values()),
        *group_problems(facts),
        *proof_problems(verdicts),
    )
    is_blocked = any(isinstance(each, Reason) for each in found)
    return Findings(
        facts,
        (
            *chosen.notices,
            *found,
            *(() if is_blocked else nothing_to_move(facts)),
            *replication_warnings(facts, down),
            *group_warnings(facts),
        ),
        tuple(halted_problems(facts, down)),
        verdicts,
    )


def _after_loss(
    context: MoveContext, request: MoveRequest, move_id: str, chosen: MoveScope | None
) -> Findings:
    """Look at the target alone. No group blocks another."""
    outlook = read_outlook(context, request, chosen=chosen)
    staying: tuple[Reason | str, ...] = ()
    if chosen is None:
        outlook, staying = _without_routed(outlook, request, move_id)
    if any(isinstance(each, Reason) for each in staying):
        return Findings(outlook.facts, staying, outlook=outlook)
    redirectors = redirect_problems(context.forward, redirectors_of(context, request))
    return Findings(
        outlook.facts,
        (
            *nothing_to_move(outlook.facts),
            *staying,
            # Configured redirectors are called; the move does not wait for others.
            *(each.text for each in redirectors),
            *group_problems(outlook.facts),
            *group_warnings(outlook.facts),
            *loss_warnings(outlook, move_id),
        ),
        outlook=outlook,
    )


def _without_routed(
    outlook: Outlook, request: MoveRequest, move_id: str
) -> tuple[Outlook, tuple[Reason | str, ...]]:
    """Leave out what an earlier move sent elsewhere; return findings for what is named."""
    routes = outlook.facts.routing.merge
    there = {
        subject: why
        for subject, why in routing_conflicts(outlook.facts, request, move_id).items()
        if routes[subject].state == "go"
    }
    every, flow = outlook.facts.subjects, request.flow
    named = subjects_of(request.topics, request.groups)
    if every and not named and {*every} <= {*there}:
        movers = some(sorted({routes[one].move_id for one in every}))
        text = (
            f"all clients of {flow} are already routed to {flow.target}, by {movers}; if a later "
            f"move unknown to {flow.target} sent them to {flow.source}, {TAKE_OVER}"
        )
        return outlook.without(every), (Reason(text),)
    in_vain = bool(named) and {*named} <= {*there}
    staying = [there[one] for one in named if one in there]
    found = tuple(map(Reason, staying)) if in_vain else tuple(staying)
    return outlook.without(every if in_vain else there), found


def _down(context: MoveContext, facts: MoveFacts) -> Reason | None:
    """Return why the replicator of the move's flow is down, None if it runs."""
    topic, flow = state_topic(context.forward), context.forward.config.flow

    def slots(records: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
        return {key: value for key, value in records.items() if key.startswith(SLOT_PREFIX)}

    records = topic.read()
    driver, _ = driver_status(records, flow, context.now_ms())
    statuses = slot_statuses(facts.maps.reports, facts.maps_ms)
    reason = next(down_reasons(flow, driver, statuses), None)
    missing = any(partition.remaining for partition in facts.replication())
    if reason is None or (driver and driver.ended) or not missing:
        return reason
    # The clock of this host may be wrong: a slot whose records change is alive.
    context.pause(ECHO_S)
    return reason if slots(topic.read()) == slots(records) else None


def prove_groups(context: MoveContext, request: MoveRequest, facts: MoveFacts) -> Verdicts:
    """Return the verdicts on the translations of all groups; disproved ones are checked twice."""
    verdicts = verdicts_of(context.forward, _claims(facts))
    suspects = {where for where, found in verdicts.items() if found.state == "disproved"}
    if suspects:
        groups = sorted({group for group, _ in suspects})
        # A log may have been truncated or re-created since the first look.
        fresh = read_facts(context, request, facts.topics, groups)
        again = verdicts_of(context.forward, _claims(fresh))
        verdicts |= {where: again.get(where, _MOVED) for where in suspects}
    return verdicts


def proof_problems(verdicts: Verdicts) -> Iterator[Reason]:
    """Yield a blocking finding for each wrong translation."""
    for (group, partition), found in sorted(verdicts.items(), key=lambda item: item[0]):
        if found.state == "disproved":
            yield Reason.saying(
                f"group {group}, {partition}: the records show that its translation is wrong, "
                f"{found.reason}",
                "compare the copies with srm verify, and restart the replicator, which finds the "
                "records again in both logs",
            )


def _claims(facts: MoveFacts) -> dict[Where, TranslationClaim]:
    claims = dict[Where, TranslationClaim]()
    for group in facts.groups:
        for partition, found, at in facts.translations(group):
            if at.offset is not None and at.reached is not None:
                skipped = at.total_skipped > 0
                claim = TranslationClaim(found, at.reached, at.offset, skipped=skipped)
                claims[group, partition] = claim
    return claims


def written_together(
    source: Cluster, request: MoveRequest, topics: Collection[str], replicated: Collection[str]
) -> Iterator[Reason | str]:
    """Check that transactions seen on the source write only topics that move together."""
    seen = source.transactional_topics()
    if seen is None:
        yield (
            f"the topics of transactions on {source.alias} are unknown: "
            f"grant Read on topic __transaction_state, or name all topics of such a producer"
        )
    found: dict[str, Reason | str] = {}
    for one in seen or ():
        moving, staying = sorted(one & set(topics)), sorted(one - set(topics))
        if not moving or not staying:
            continue
        both = f"{', '.join(moving)} with {', '.join(staying)}"
        which = f"transactions on {source.alias} write {both}"
        if movable := [topic for topic in staying if topic in replicated]:
            more = " ".join(f"--topic {topic}" for topic in movable)
            text = f"{which}: move them together, add {more}"
            found[text] = Reason(text)
        else:
            text = f"{which}, not replicated by {request.flow}"
            text = f"{text}: on {request.target} their producer has no such topic"
            found[text] = text
    yield from found.values()


def redirectors_of(context: MoveContext, request: MoveRequest) -> tuple[RedirectKind, ...]:
    """Return the redirectors of a move: those of the request, or the configured ones."""
    return request.redirect or context.forward.config.redirect.kinds


def fence_of(context: MoveContext, request: MoveRequest) -> FenceKind:
    """Return the fence of the source: that of the request, or the configured one."""
    return request.fence or context.forward.config.redirect.fence
