"""Plan of a move: where its groups continue, and the conditions that block it."""

from __future__ import annotations

import re
import secrets
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from srm.config.model import FlowConfig, settings_of_move
from srm.domain.flow_state.liveness_thresholds import ECHO_S
from srm.domain.flow_state.replication_records import SLOT_PREFIX, read_pause
from srm.domain.groups.checkpoints import deletions
from srm.domain.groups.proof import TranslationClaim, Verdict
from srm.domain.moves.gate import ReplicationFacts
from srm.domain.moves.limits import LIMITS_UNKNOWN
from srm.domain.moves.plan import (
    GroupPlan,
    MovePlan,
    PartitionMove,
    position_problem,
    with_costs,
)
from srm.domain.moves.progress import end_of_pause, run_again
from srm.domain.moves.request import MoveRequest
from srm.domain.moves.routing import RedirectKind, Route, group_subject, subjects_of
from srm.domain.moves.whereabouts import Whereabouts
from srm.domain.text.amount import Finding, Reason, amount, moment, problem, some, warning
from srm.engine.cluster_ports import answers
from srm.engine.flows.supervision import down_reasons, driver_status, slot_statuses, state_topic
from srm.engine.flows.target_topics import StateTopic
from srm.engine.groups.proving import Where, verdicts_of
from srm.engine.moves.attempt import homes_to_move
from srm.engine.moves.context import MoveContext, as_move, ensure_topics, sides_of
from srm.engine.moves.effects import require_in_force
from srm.engine.moves.facts import MoveFacts, missing_reasons
from srm.engine.moves.reading import (
    MoveScope,
    groups_on_source,
    originals,
    read_facts,
    read_outlook,
    read_target,
    topics_to_move,
)
from srm.engine.moves.registers import Registers, transact
from srm.engine.moves.store import MoveStore, undecided_moves
from srm.engine.moves.surroundings import surrounding_findings
from srm.engine.moves.tables import ControlChange
from srm.engine.ports import FlowContext
from srm.errors import ConflictError, UnavailableError, UsageError, message

_REPLACEABLE: Final = frozenset({"planned", "released"})
Verdicts = Mapping[Where, Verdict]
"""By group and partition on the source, for partitions with a translation."""
_MOVED = Verdict("unproven", "the group has committed since")


def plan(
    context: MoveContext, request: MoveRequest, move_id: str | None = None, *, dry_run: bool = False
) -> MovePlan:
    """Plan a move and store the plan under its id; the first step, safe to repeat.

    ``move_id``: the same again replaces the plan; if the move has continued, it is returned.
    ConflictError: it belongs to another request, or to a move that has ended and is superseded.
    ``dry_run``: the same, but nothing is written to either cluster.
    """
    if request.flow != context.forward.config.flow:
        raise UsageError(
            f"the move is {request.flow}, but the given flow is {context.forward.config.flow}"
        )
    context = replace(context, only_look=dry_run or context.only_look)
    try:
        return _plan(context, request, move_id)
    except UnavailableError as error:
        raise with_action(error, way_without_source(context, request)) from error


def with_action(error: UnavailableError, action: str) -> UnavailableError:
    """Return an error with one action more, if there is one."""
    return UnavailableError(error.what, "; ".join(filter(None, (error.action, action))))


def way_without_source(context: MoveContext, request: MoveRequest) -> str:
    """Return the command that abandons the source if it alone does not answer, else nothing."""
    if request.is_unplanned or answers(context.source) or not answers(context.target):
        return ""
    command = f"srm failover run --mode unplanned {request.options}"
    return f"if {request.source} is lost, move with mode unplanned: {command}"


def _plan(context: MoveContext, request: MoveRequest, given_id: str | None) -> MovePlan:
    if not context.only_look:
        ensure_topics(context, unplanned=request.is_unplanned)
    store, move_id = MoveStore.read(context), given_id or new_move_id(context, request)
    store.require_open(move_id)
    if (known := store.plan(move_id)) is not None:
        if known.request != request:
            raise ConflictError(
                f"move {move_id!r} was planned for another request: choose another id, or "
                f"continue it: {run_again(request.flow, move_id)}"
            )
        if (at := store.progress(move_id)).step not in _REPLACEABLE:
            require_in_force(context, known, at, lifts=not context.only_look)
            return known
    fresh = compute_plan(context, request, move_id)
    return fresh if context.only_look else _keep(context, fresh)


def _keep(context: MoveContext, fresh: MovePlan) -> MovePlan:
    """Store a plan, unless an earlier one has held clients while it was computed."""
    change = ControlChange(documents={f"plan:{fresh.move_id}": fresh.value()})

    def body(registers: Registers) -> MovePlan:
        sides = sides_of(fresh.request)
        registers.require(*sides)
        registers.store.require_open(fresh.move_id)
        known = registers.store.plan(fresh.move_id)
        if known is not None and registers.store.progress(fresh.move_id).step not in _REPLACEABLE:
            return known
        for side in sides:
            registers.write(side, change)
        return fresh

    return transact(context, f"plan of move {fresh.move_id}", body)


def new_move_id(context: MoveContext, request: MoveRequest) -> str:
    time = f"{moment(context.now_ms()):%Y%m%dT%H%M%S}"
    return f"{time}-{request.operation}-{request.source}-{request.target}-{secrets.token_hex(2)}"


@dataclass(frozen=True)
class Findings:
    """One look at what moves: facts, conditions and proofs.

    ``found``: those that block keep the move from starting; :data:`HALTED` also from waiting.
    """

    facts: MoveFacts
    found: tuple[Finding, ...]
    verdicts: Verdicts = field(default_factory=dict)

    @property
    def blocking(self) -> tuple[Finding, ...]:
        return tuple(each for each in self.found if each.blocks)


def compute_plan(context: MoveContext, request: MoveRequest, move_id: str) -> MovePlan:
    seen = look_around(context, request, move_id)
    facts, now_ms = seen.facts, context.now_ms()
    settings = context.forward.config.redirect
    return MovePlan(
        move_id=move_id,
        created_ms=now_ms,
        request=request,
        topics=facts.topics,
        groups=facts.plans,
        findings=seen.found,
        settings=settings_of(context),
        forecast=facts.forecast(now_ms) if facts.is_away else None,
        redirect=request.redirect or settings.kinds,
        fence=request.fence or settings.fence,
        homes=_homes(context, facts),
    )


def plan_at_go(context: MoveContext, plan: MovePlan, known: MovePlan, facts: MoveFacts) -> MovePlan:
    """Return a plan with the rows and warnings of a look that the gate accepts.

    ``known``: that of an earlier look of the attempt, whose costs applied offsets now hide.
    """
    facts = facts.with_plans(tuple(with_costs(facts.plans, known.groups)))
    now = (*map(as_warning, _position_problems(facts)), *group_warnings(facts))
    kept = (one for one in plan.findings if one.id not in _OF_ROWS)
    late = sorted({*_topics_now(context, plan.request)}.difference(plan.topics))
    came = f"{some(late)}: copied only since the plan, so its clients stay on {plan.request.source}"
    late_ones = [warning("not-moved", came)] if late else []
    return replace(plan, groups=facts.plans, findings=(*kept, *now, *late_ones))


def _topics_now(context: MoveContext, request: MoveRequest) -> tuple[str, ...]:
    """Return the topics that a plan of now would move, if the request names none."""
    return () if request.topics else topics_to_move(context, request, context.target.topics())


def settings_of(context: MoveContext) -> dict[str, dict[str, str]]:
    """Return the settings of both flows that the steps of a move need, by flow."""
    both = context.forward.config, context.reverse.config
    return {str(config.flow): settings_of_move(config) for config in both}


def _homes(context: MoveContext, facts: MoveFacts) -> tuple[str, ...]:
    """Return the homes to move; a planned move of all that is left counts as of everything."""
    request, routes = facts.request, facts.routing.merge
    everything = request.of_everything
    homes = homes_to_move(request, routes)
    if not homes or request == everything or request.is_unplanned:
        return homes if request == everything else ()
    topics = topics_to_move(context, everything, context.target.topics())
    all_there = subjects_of(topics, groups_on_source(context, everything, topics).groups)
    left = {*all_there}.difference(facts.subjects)
    homes_on = facts.routing.where.homes_on
    is_last = not any({*homes}.intersection(homes_on(one, request.source)) for one in left)
    return homes if is_last else ()


def look_around(context: MoveContext, request: MoveRequest, move_id: str) -> Findings:
    """Look as a plan does: at what moves, and at the surroundings of the move."""
    seen = findings(context, request, move_id)
    return replace(seen, found=(*surrounding_findings(context, seen.facts), *seen.found))


def findings(
    context: MoveContext, request: MoveRequest, move_id: str, chosen: MoveScope | None = None
) -> Findings:
    """Look at what moves, or an earlier look chose; list what blocks or deserves a warning."""
    scope = chosen
    if request.is_unplanned:
        facts = read_outlook(context, read_target(context, request, scope))
    else:
        if scope is None:
            topics = topics_to_move(context, request, context.target.topics())
            scope = groups_on_source(context, request, topics)
        facts = read_facts(context, request, scope.topics, scope.groups)
    notices = () if scope is None else scope.notices
    staying = tuple(warning("not-moved", notice) for notice in notices)
    if chosen is None:
        facts, left = _of_those_here(facts, move_id)
        staying += left
    if request.is_unplanned:
        return _after_loss(context, facts, staying, move_id)
    verdicts = prove_groups(context, facts)
    down = _down(context, facts)
    found = (
        *redirect_problems(context.forward, request),
        *fence_problems(context, facts),
        *unsettled_problems(context.forward),
        *topic_problems(context.forward.config, facts),
        *written_together(context, facts),
        *(problem("routed", why) for why in routing_conflicts(facts, move_id).values()),
        *group_problems(facts),
        *proof_problems(verdicts),
    )
    is_blocked = any(each.blocks for each in found)
    return Findings(
        facts,
        (
            *staying,
            *found,
            *(() if is_blocked else nothing_to_move(facts)),
            *elsewhere_warnings(facts),
            *replication_warnings(facts, down),
            *group_warnings(facts),
            *halted_problems(facts, down),
        ),
        verdicts,
    )


def _after_loss(
    context: MoveContext, facts: MoveFacts, staying: tuple[Finding, ...], move_id: str
) -> Findings:
    """Judge a look at the target alone. No group blocks another."""
    if any(each.blocks for each in staying):
        return Findings(facts, staying)
    return Findings(
        facts,
        (
            *nothing_to_move(facts),
            *staying,
            # Configured redirectors are called; the move does not wait for others.
            *map(as_warning, redirect_problems(context.forward, facts.request)),
            *fence_problems(context, facts),
            *group_problems(facts),
            *elsewhere_warnings(facts),
            *group_warnings(facts),
            *loss_warnings(facts, move_id),
        ),
    )


def _of_those_here(facts: MoveFacts, move_id: str) -> tuple[MoveFacts, tuple[Finding, ...]]:
    """Leave out groups at home on the target, unless they are named, and what is routed there."""
    facts, staying = _without_routed(facts, move_id)
    home = [] if facts.request.groups else [*filter(facts.is_at_home_there, facts.groups)]
    if not home:
        return facts, staying
    line = f"{_have(home)} members on {facts.request.target} alone, at home there: not moved"
    return facts.without({*map(group_subject, home)}), (*staying, warning("at-home", line))


def _without_routed(facts: MoveFacts, move_id: str) -> tuple[MoveFacts, tuple[Finding, ...]]:
    """Leave out what an earlier move sent elsewhere; return findings for what is named."""
    request, routes, where = facts.request, facts.routing.merge, facts.routing.where
    there = {
        subject: why
        for subject, why in routing_conflicts(facts, move_id).items()
        if subject not in routes or routes[subject].state == "go"
        if facts.is_away or where.cluster_of(subject, request.source) == request.target
    }
    every, flow = facts.subjects, request.flow
    named = subjects_of(request.topics, request.groups)
    if not (facts.is_away or facts.without(there).groups):
        return facts, ()  # its conflicts block it
    if every and not named and {*every} <= {*there}:
        led = [one for name in every for one in where.of(name, request.source)]
        movers = some(sorted({one.move_id for one in led}))
        places = some(sorted({one.cluster for one in led}))
        text = (
            f"all clients of {flow} are already routed to {places}, by {movers}; if a later "
            f"move unknown to {flow.target} sent them to {flow.source}, {TAKE_OVER}"
        )
        return facts.without(every), (problem("routed", text),)
    in_vain = facts.is_away and bool(named) and {*named} <= {*there}
    staying = (Finding(there[one], "", "routed", in_vain) for one in named if one in there)
    return facts.without(every if in_vain else there), tuple(staying)


def _down(context: MoveContext, facts: MoveFacts) -> Finding | None:
    topic, config = state_topic(context.forward), context.forward.config
    records = topic.read()
    driver = driver_status(records, config.flow, context.now_ms())
    statuses = slot_statuses(facts.maps.reports, facts.maps_ms)
    reason = next(down_reasons(config.flow, driver, statuses), None)
    if reason is not None and not config.enabled:
        text = f"flow {config.flow} is disabled: set {config.flow}.enabled = true"
        reason = problem("replicator", text)
    missing = any(partition.remaining for partition in facts.replication)
    if reason is None or (driver and driver.ended) or not missing:
        return reason
    # The clock of this host may be wrong: a slot whose records change is alive.
    context.pause(ECHO_S)
    changed = (key for key, _ in topic.read().items() ^ records.items())
    return None if any(key.startswith(SLOT_PREFIX) for key in changed) else reason


def prove_groups(context: MoveContext, facts: MoveFacts) -> Verdicts:
    """Return the verdicts on the translations of all groups; disproved ones are checked twice."""
    verdicts = verdicts_of(context.forward, _claims(facts))
    suspects = {where for where, found in verdicts.items() if found.state == "disproved"}
    if suspects:
        groups = sorted({group for group, _ in suspects})
        # A log may have been truncated or re-created since the first look.
        fresh = read_facts(context, facts.request, facts.topics, groups)
        again = verdicts_of(context.forward, _claims(fresh))
        verdicts |= {where: again.get(where, _MOVED) for where in suspects}
    return verdicts


def proof_problems(verdicts: Verdicts) -> Iterator[Finding]:
    for (group, partition), found in sorted(verdicts.items(), key=lambda item: item[0]):
        if found.state == "disproved":
            yield problem(
                "proof",
                f"group {group}, {partition}: the records show that its translation is wrong, "
                f"{found.reason}; compare the copies with srm verify, and restart the replicator, "
                f"which finds the records again in both logs",
            )


def _claims(facts: MoveFacts) -> dict[Where, TranslationClaim]:
    return {
        (group, place): TranslationClaim(of, at.reached, at.offset, skipped=at.total_skipped > 0)
        for group in facts.groups
        for place, of, at in facts.translations(group)
        if at.offset is not None and at.reached is not None
    }


def written_together(context: MoveContext, facts: MoveFacts) -> Iterator[Finding]:
    """Check that transactions seen on the source write only topics that move together."""
    source, topics = context.source, {*facts.topics}
    replicated = originals(facts.source.topics, context.forward.config)
    seen = source.transactional_topics()
    if seen is None:
        yield warning(
            "transactions",
            f"the topics of transactions on {source.alias} are unknown: "
            f"grant Read on topic __transaction_state, or name all topics of such a producer",
        )
    found = dict[str, Finding]()
    for one in seen or ():
        moving = sorted(one & topics)
        staying = sorted(one.difference(pair.original for pair in facts.pairs))
        if not moving or not staying:
            continue
        both = f"{', '.join(moving)} with {', '.join(staying)}"
        which = f"transactions on {source.alias} write {both}"
        if movable := [topic for topic in staying if topic in replicated]:
            more = " ".join(f"--topic {topic}" for topic in movable)
            text = f"{which}: move them together, add {more}"
            found[text] = problem("transactions", text)
        else:
            text = f"{which}, not replicated by {facts.request.flow}"
            text = f"{text}: on {facts.request.target} their producer has no such topic"
            found[text] = warning("transactions", text)
    yield from found.values()


HALTED: Final = "halted"
"""Finding of what is not copied until an operator acts: a move would wait for it in vain."""
WAIT: Final = "wait"
"""Finding of what a move waits for by itself, and clients continue if it waits in vain."""
NOT_PROMPTED: Final = frozenset({WAIT, LIMITS_UNKNOWN})
"""Warnings that a run needs no approval for."""
TAKE_OVER: Final = "take over its clients with --reroute (in the form: reroute)"

_SETTINGS: Final[Mapping[RedirectKind, tuple[str, ...]]] = {
    "webhook": ("webhook.url", "webhook.secret"),
    "command": ("command",),
}


def redirect_problems(flow: FlowContext, request: MoveRequest) -> Iterator[Finding]:
    for kind in request.redirect or flow.config.redirect.kinds:
        if kind in _SETTINGS and kind not in flow.callers:
            keys = " and ".join(f"{flow.config.flow}.failover.{key}" for key in _SETTINGS[kind])
            text = f"redirector {kind} is not configured; set {keys} (docs/redirect.md)"
            yield problem("redirector", text)


def unsettled_problems(flow: FlowContext) -> Iterator[Finding]:
    """Yield a problem if the target is not settled after a disaster; for a planned move only."""
    back = flow.config.flow.reverse
    pause = read_pause(StateTopic(flow.source, back.source).read_commands())
    if pause is not None:
        open_move = next(undecided_moves(as_move(flow).reverse, pause), None)
        settle = f"settle its return first: srm return status --flow '{back}'"
        action = settle if open_move is None else end_of_pause(back, open_move.move_id)
        yield problem(
            "unsettled",
            f"{back} is paused ({pause.reason}): clients on {back.source} would write records that "
            f"{back.target} never gets; {action}",
            action,
        )


def topic_problems(config: FlowConfig, facts: MoveFacts) -> Iterator[Finding]:
    names, flow = config.names, config.flow
    for topic in facts.topics:
        if topic not in facts.source.topics:
            continue
        remote = names.remote(topic)
        if not names.selects(topic):
            why = f"topic {topic} is not replicated by {flow}"
            text = f"{why}: add it with 'srm-control topics {flow.options} --add {topic}'"
            yield problem("not-selected", text)
        elif remote not in facts.target.topics:
            why = f"srm why {topic} --flow '{flow}'" if config.enabled else f"{flow} is disabled"
            yield problem("no-copy", f"topic {remote} does not exist on {flow.target}: {why}")


def routing_conflicts(facts: MoveFacts, move_id: str) -> dict[str, str]:
    routing, request, found = facts.routing, facts.request, dict[str, str]()
    for subject in facts.subjects:
        route = routing.merge.get(subject)
        if why := route_problem(subject, route, routing.where, request, move_id):
            found[subject] = why
    return found


def route_problem(
    subject: str, route: Route | None, where: Whereabouts, request: MoveRequest, move_id: str
) -> str:
    """Return why a move cannot lead the clients of a subject: another holds them, or none is there.

    ``route``: the newest of the subject.
    """
    if route is not None and route.state == "hold" and route.move_id != move_id:
        return f"{subject} is held by move {route.move_id}: finish or release that one first"
    if request.reroute or where.homes_on(subject, request.source):
        return ""
    there = some(sorted(where.clusters(subject, request.source)))
    why = f"{subject} is routed to {there}, so it cannot leave {request.source}"
    return f"{why}: {TAKE_OVER}" if request.is_unplanned else why


def elsewhere_warnings(facts: MoveFacts) -> Iterator[Finding]:
    """Yield where clients at home on the source work, if the move leads only those of others."""
    where, request, away = facts.routing.where, facts.request, defaultdict[str, list[str]](list)
    for subject in () if request.reroute else facts.subjects:
        there = where.clusters(subject, request.source)
        if request.source not in there and where.homes_on(subject, request.source):
            away[some(sorted(there))].append(subject)
    for place, subjects in away.items():
        clients = f"clients at home on {request.source} ({some(subjects)})"
        how = f"to move them, too, plan a move from {place}"
        how = f"{how}, or {TAKE_OVER}" if request.is_unplanned else how
        yield warning("elsewhere", f"{clients} work on {place}: not moved", how)


def group_problems(facts: MoveFacts) -> Iterator[Finding]:
    """Yield what keeps groups from continuing; after a loss warnings, see :func:`left_alone`."""
    left = left_alone(facts) if facts.is_away else {}
    for name, why in left.items():
        yield warning("left-alone", f"group {name} is not changed: {why}")
    for group in () if facts.is_away else facts.plans:
        yield from _state_problems(group.group, facts)
        yield from _stray_offsets(group, facts)
    found = _position_problems(facts)
    yield from map(as_warning, found) if facts.is_away else found


def _position_problems(facts: MoveFacts) -> Iterator[Finding]:
    return _as_one(facts, lambda *of: filter(None, [position_problem(*of)]))


_NUMBERED: Final = re.compile(r"\S*\d\S*")
_Count = Callable[[PartitionMove], int]
_COSTS: Final[Mapping[str, tuple[_Count, str]]] = {
    "skips": (lambda position: position.not_there, "to skip"),
    "kept-records": (lambda position: position.passed_kept, "to skip"),
    "conflict": (lambda position: position.re_read, "to read again"),
}
"""What findings about positions cost: their records, and what happens to these."""
_OF_ROWS: Final = frozenset({*_COSTS, "untranslated", "no-commit", "share-group", "own-commit"})
"""Findings about the rows of groups, which :func:`plan_at_go` makes again."""
_NO_COST: Final[tuple[_Count, str]] = (lambda _: 0, "")


def _as_one(
    facts: MoveFacts, of: Callable[[str, PartitionMove, MoveRequest], Iterable[Finding]]
) -> Iterator[Finding]:
    """Yield the worst of findings alike, with the number and names of the others, and a total.

    Alike are those of one id and action, with one reason but for its numbers.
    """
    alike = defaultdict[tuple[str, ...], list[tuple[str, Finding, PartitionMove]]](list)
    for group in facts.plans:
        for position in group.positions:
            for one in of(group.group, position, facts.request):
                key = one.id, one.action, _NUMBERED.sub("", position.reason)
                alike[key].append((f"{group.group} {position.name}", one, position))
    for (kind, *_), found in alike.items():
        count, costs = _COSTS.get(kind, _NO_COST)
        found.sort(key=lambda each: -count(each[2]))
        (_, first, _), *others = found
        total = sum(count(position) for _, _, position in found)
        in_all = f", {amount(total, 'record')} {costs} in all" if total else ""
        names = [name for name, _, _ in others]
        more = f"; {amount(len(names), 'more position')} alike{in_all}: {some(names)}"
        yield replace(first, text=f"{first.text}{more if names else ''}")


def as_warning(found: Finding) -> Finding:
    return replace(found, blocks=False)


def left_alone(facts: MoveFacts) -> dict[str, str]:
    """Return the groups whose offsets on the target cannot be set now, with the reason."""
    left: dict[str, str] = {}
    for group in facts.groups:
        if unreadable := facts.unreadable(group):
            left[group] = f"its offsets cannot be read: {unreadable[0].text}"
        elif activity := facts.activity_there(group):
            left[group] = f"it is {activity}"
    return left


def _state_problems(name: str, facts: MoveFacts) -> Iterator[Finding]:
    if activity := facts.activity_there(name):
        yield problem("in-use", f"group {name} is {activity}: stop it there")
    here, there = (side.group(name) for side in (facts.source, facts.target))
    kinds = {one.kind == "share" for one in (here, there) if one.state in {"empty", "active"}}
    if len(kinds) > 1:
        what = f"a {here.kind} group on {facts.source.alias}, but a {there.kind} one on"
        text = f"group {name} is {what} {facts.target.alias}: delete it there"
        yield problem("group-type", text)
    if here.state == "unknown":
        why, what = here.reason or "its state is not known", f"group {name} on {facts.source.alias}"
        yield problem("unreadable", f"{what} may have members: {why}", here.action)
    for reason in facts.unreadable(name):
        text = f"offsets of group {name} cannot be read: {reason.text}"
        yield problem("unreadable", text, reason.action)


def _stray_offsets(group: GroupPlan, facts: MoveFacts) -> Iterator[Finding]:
    name, request = group.group, facts.request
    topics = {tp.topic for tp in facts.source.committed.get(name, {})} & facts.source.topics.keys()
    if stray := ", ".join(sorted(topics - facts.read_topics)):
        left = (
            f"group {name} moves without its offsets on {stray}, which do not move: group offset "
            f"sync or its auto.offset.reset decides where it starts in them on {request.target}"
        )
        text = (
            f"group {name} also has offsets on {stray}, which do not move: add "
            f"them to the topics, delete these offsets, or move without them: "
            f"--accept-stray-offsets (in the form: accept_stray_offsets)"
        )
        accept = request.accept_stray_offsets
        yield Finding(left if accept else text, "", "stray-offsets", blocks=not accept)


def halted_problems(facts: MoveFacts, down: Reason | None) -> Iterator[Finding]:
    """Yield what is :data:`HALTED`; partitions that resume by themselves do not count."""
    if down is not None and (missing := _missing(facts)):
        topics = some(sorted({each.place.topic for each in missing}))
        offsets = amount(sum(missing.values()), "offset")
        text = f"not copied: {offsets} of {topics}; replicator down: {down.text}"
        yield problem(HALTED, text, down.action)
    for each in facts.replication:
        if (halt := each.halt_reason) is not None:
            yield problem(HALTED, halt.text, halt.action)


def _missing(facts: MoveFacts) -> dict[ReplicationFacts, int]:
    """Return what must still be copied; the lag of a partition whose map is damaged is unknown."""
    accept = facts.request.accept_open_transactions
    left = {
        each: each.remaining - (each.held_back if accept else 0)
        for each in facts.replication
        if not each.damage
    }
    return {each: count for each, count in left.items() if count}


def nothing_to_move(facts: MoveFacts) -> Iterator[Finding]:
    yield from (problem("nothing-to-move", why) for why in _why_nothing_moves(facts))


def _why_nothing_moves(facts: MoveFacts) -> Iterator[str]:
    flow, target = facts.request.flow, facts.request.target
    if facts.is_away:
        if not facts.pairs:
            yield f"flow {flow} has copied nothing, so {target} has no topic to move"
        elif not facts.maps.reports or not (
            facts.away.places or any(facts.maps.get(one).position for one in facts.away.copies)
        ):
            what = f"flow {flow} has never copied anything to {target}"
            action = f"start consumers on {target} by hand, auto.offset.reset decides where"
            yield f"{what}: nothing is known about {flow.source}; {action}"
    elif not facts.topics and not facts.pairs and facts.request.groups:
        unknown = f"no commit or client of {some(facts.request.groups)} names a topic of {flow}"
        yield f"{unknown}: name the topics that move with --topic"
    elif not facts.pairs:
        yield f"{flow} does not copy any topic: srm-control topics {flow.options} --add 'TOPIC'"
    elif not facts.groups:
        read = sorted({pair.original for pair in facts.pairs})
        yield f"no group has offsets on {', '.join(read)}: name the groups to move"


def replication_warnings(facts: MoveFacts, down: Reason | None) -> Iterator[Finding]:
    """Yield what a move has to wait for on the source, and a replicator down without lag."""
    request = facts.request
    if down is not None and facts.replication and not _missing(facts):
        why = message(down.text, down.action)
        yield warning("replicator", f"the replicator of {request.flow} is down: {why}")
    for partition in facts.replication:
        if partition.held_back and request.accept_open_transactions:
            yield warning(
                "open-transaction",
                f"{partition.place} has an open transaction from offset {partition.log.stable_end} "
                f"on: {request.target} will lack {amount(partition.held_back, 'record')}",
            )
    for reason in missing_reasons(facts) if down is None else ():
        yield warning(WAIT, f"the move will wait: {reason}")


def group_warnings(facts: MoveFacts) -> Iterator[Finding]:
    yield from _as_one(facts, _cost_warnings)
    for group in facts.plans:
        yield from _warnings_of(group, facts.request)
        if group.group in facts.share_groups:
            yield from _losses_of_share_group(group, facts)
        if not (group.positions or facts.is_away or facts.unreadable(group.group)):
            yield warning("no-commit", _start_without_commit(group.group, facts))
    yield from _without_place(facts)
    overtaken = [plan for plan in facts.plans if plan.total_skipped] if facts.is_away else []
    if overtaken:
        count, target = sum(plan.total_skipped for plan in overtaken), facts.request.target
        yield warning(
            "skips",
            f"{amount(len(overtaken), 'group')} ({some([p.group for p in overtaken])}) skip "
            f"{amount(count, 'record')} that {target} no longer holds and they may not have read",
        )
    if remnants := [name for name in facts.groups if facts.remnants(name)]:
        yield warning(
            "old-members",
            f"{_have(remnants)} members on {facts.request.target} whose clients work on "
            f"{facts.request.source}, as after a restart of its brokers: the hold removes them",
        )
    own = [
        group.group
        for group in facts.plans
        if any(p.state == "own-commit" and p.committed is not None for p in group.positions)
    ]
    if own:
        yield warning(
            "own-commit",
            f"{amount(len(own), 'group')} ({some(own)}) keep later commits of their own on "
            f"{facts.request.target}: replace them with --overwrite (in the form: overwrite)",
        )


def _start_without_commit(group: str, facts: MoveFacts) -> str:
    source, target = facts.request.source, facts.request.target
    copies, own = {pair.target_topic for pair in facts.pairs}, facts.target.committed.get(group, {})
    if places := [f"{at} at {offset}" for at, offset in own.items() if at.topic in copies]:
        kept = f"it continues at its own on {target}: {some(sorted(places))}"
        return f"group {group} has no commit on {source} to move: {kept}"
    start = f"it starts on {target} as auto.offset.reset of its clients says"
    return f"group {group} has committed nothing: {start}"


def _losses_of_share_group(group: GroupPlan, facts: MoveFacts) -> Iterator[Finding]:
    """Yield what a share group loses: only its start offsets move (KIP-932)."""
    source, target = facts.request.source, facts.request.target
    before, after = (side.resets.get(group.group) for side in (facts.source, facts.target))
    known = facts.source.unacknowledged.get(group.group)
    count = amount(group.re_read, "record") if known is not None else "records"
    yield warning(
        "share-group",
        f"share group {group.group} continues at its start offsets: {count} that it acknowledged "
        f"after them are delivered again on {target}, and delivery counts begin at 0",
    )
    if before != after and before and after:
        yield warning(
            "share-group",
            f"share group {group.group} has share.auto.offset.reset = {before} on {source} and "
            f"{after} on {target}: set it there with kafka-configs.sh --entity-type groups",
        )


def _cost_warnings(name: str, position: PartitionMove, request: MoveRequest) -> Iterator[Finding]:
    """Yield what the request accepts, and what an operator has decided before."""
    if position.not_there and request.accept_skips:
        yield warning(
            "skips",
            f"group {name} will skip {amount(position.not_there, 'record')} of "
            f"{position.name}: {position.reason}",
        )
    if position.passed_kept:
        yield warning(
            "kept-records",
            f"group {name} skips {amount(position.passed_kept, 'offset')} of "
            f"{position.target} that were kept on {request.target} when it returned: it has "
            f"read later records in {position.topic}. To read them, reset its offset there "
            "after the move",
        )
    if position.state == "conflict" and request.overwrite:
        yield warning(
            "conflict",
            f"group {name} will read {amount(position.re_read, 'record')} of "
            f"{position.target} again",
        )


def _warnings_of(group: GroupPlan, request: MoveRequest) -> Iterator[Finding]:
    source, target = request.source, request.target
    if unread := [position.name for position in group.positions if position.left_to_commit]:
        yield warning(
            "no-commit",
            f"group {group.group} has committed nothing for {some(unread)} on {source}: it "
            f"continues at its own commit on {target}, after records of {source} that it may not "
            f"have read",
        )


def _without_place(facts: MoveFacts) -> Iterator[Finding]:
    """Yield what auto.offset.reset decides, in one line for groups with the same partitions."""
    alike = defaultdict[tuple[tuple[str, ...], str], list[str]](list)
    for group in facts.plans:
        share = "share." if group.group in facts.share_groups else ""
        if names := tuple(one.name for one in group.positions if one.left_to_reset):
            alike[names, share].append(group.group)
    for (names, share), groups in alike.items():
        yield warning(
            "no-commit",
            f"{_have(groups)} committed nothing for {some(names)}: where to start there on "
            f"{facts.request.target} is decided as {share}auto.offset.reset says",
        )


def _have(groups: Sequence[str]) -> str:
    if len(groups) == 1:
        return f"group {groups[0]} has"
    return f"{amount(len(groups), 'group')} ({some(groups)}) have"


def loss_warnings(facts: MoveFacts, move_id: str) -> Iterator[Finding]:
    target, flow = facts.request.target, facts.request.flow
    routes, away = facts.routing.merge, facts.away
    deleted = {
        group: since_ms
        for group, since_ms in away.deleted.items()
        if group not in facts.groups
        if group not in away.forgotten or group_subject(group) in routes
    }
    lines = deletions(flow.source, deleted, may_name=True)
    yield from (warning("not-moved", line) for line in lines)
    if unseen := [plan.group for plan in facts.plans if not facts.known_places(plan)]:
        yield warning(
            "no-checkpoint",
            f"{_have(unseen)} no checkpoint and no own commit: where to start on {target} is "
            f"decided as auto.offset.reset of clients says. While {flow.source} answers, run "
            f"srm checkpoints emit --flow '{flow}'",
        )
    if plain := [plan.group for plan in facts.plans if not facts.followers(plan.group)]:
        yield warning(
            "plain-members",
            f"{_have(plain)} no client that follows routes: start the members on {target} after go",
        )
    if unserved := facts.without_leader:
        yield warning(
            "no-leader",
            f"no broker of {target} leads {some([str(place) for place in unserved])} now: groups "
            f"continue at their last checkpoint there, unverified, when one does again",
        )
    held = {
        route.move_id
        for name in facts.subjects
        if (route := routes.get(name)) is not None and route.state == "hold"
    }
    for other in sorted(held - {move_id}):
        yield warning("routed", f"move {other} holds clients of this move, which takes them over")


def fence_problems(context: MoveContext, facts: MoveFacts) -> Iterator[Finding]:
    request, back = facts.request, context.reverse.config
    if (request.fence or context.forward.config.redirect.fence) != "acl":
        return
    if not facts.is_away and (why := context.source.no_fence_reason()):
        text = f"fence acl is not possible: {why}; move without it (--fence none)"
        yield problem("fence", text)
    elif shared := [one for one in facts.topics if back.enabled and back.names.is_shared(one)]:
        yield warning(
            "fence",
            f"fence acl stops {back.flow}, too, which copies into {some(shared)}: add srm's "
            f"principal on {request.source} to super.users, or move without it (--fence none)",
        )
