"""What stands in the way of a move, and what it warns of: from one look at both clusters."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from srm.config.model import FlowConfig
from srm.domain.amount import amount, some
from srm.domain.filters import NameFilter, should_replicate_topic
from srm.domain.group_sync import IDLE
from srm.domain.move.gate import GroupFacts
from srm.domain.move.plan import GroupPlan, position_problem
from srm.domain.move.redirects import RedirectKind
from srm.domain.move.request import MoveRequest
from srm.domain.move.routes import Route, group_subject, topic_subject
from srm.domain.pause import read_pause
from srm.domain.reason import Reason
from srm.engine.move.facts import MoveFacts
from srm.engine.ports import FlowContext
from srm.engine.supervision import topic_on

_SETTINGS: Final[Mapping[RedirectKind, tuple[str, ...]]] = {
    "webhook": ("webhook.url", "webhook.secret"),
    "command": ("command",),
}


def redirect_problems(flow: FlowContext, kinds: Collection[RedirectKind]) -> Iterator[Reason]:
    """Say which redirectors cannot be called because they are not set up."""
    for kind in kinds:
        if kind in _SETTINGS and kind not in flow.callers:
            keys = " and ".join(f"{flow.config.flow}.failover.{key}" for key in _SETTINGS[kind])
            yield Reason.saying(
                f"redirector {kind} is not set up", f"set {keys} (docs/redirect.md)"
            )


def unsettled_problems(flow: FlowContext) -> Iterator[Reason]:
    """Say why no client goes to the target: it returned from a disaster, and nothing is settled.

    A planned move alone is kept from it: the pause is on the source, which an unplanned one never
    reads.

    Raises:
        SrmError: the source does not answer.
    """
    back = flow.config.flow.reversed
    pause = read_pause(topic_on(flow.source, back).read_commands())
    if pause is not None:
        yield Reason.saying(
            f"{back} is paused ({pause.reason}): clients on {back.source} would write records that "
            f"{back.target} never gets",
            f"settle its return first: srm return status --flow '{back}'",
        )


def topic_problems(config: FlowConfig, facts: MoveFacts) -> Iterator[str]:
    """Say which topics the flow of the move does not copy."""
    selection = NameFilter(config.topics, config.topics_exclude)
    for topic in facts.topics:
        if topic not in facts.source.topics:
            continue
        remote = config.policy.format_remote_topic(config.flow.source, topic)
        if not should_replicate_topic(topic, config, selection):
            yield (
                f"topic {topic} is not replicated by {config.flow}: add it with 'srm-control "
                f"topics --source {config.flow.source} --target {config.flow.target} --add {topic}'"
            )
        elif remote not in facts.target.topics:
            yield f"topic {remote} does not exist on {config.flow.target}: is the replicator on?"


def route_problems(facts: MoveFacts, request: MoveRequest, move_id: str) -> Iterator[str]:
    """Say which routes keep the move from holding clients."""
    merged = facts.routing.merged
    subjects = [topic_subject(topic) for topic in facts.topics]
    subjects += [group_subject(group) for group in facts.groups]
    for subject in subjects:
        reason = route_problem(subject, merged.get(subject), request, move_id)
        if reason is not None:
            yield reason


def route_problem(
    subject: str, route: Route | None, request: MoveRequest, move_id: str
) -> str | None:
    """Say why the route of a subject keeps a move from holding it, None where nothing does."""
    if route is None:
        return None
    if route.state == "hold" and route.move_id != move_id:
        return f"{subject} is held by move {route.move_id}: finish or release that one first"
    if route.cluster != request.source:
        return f"{subject} is routed to {route.cluster}, so it cannot leave {request.source}"
    return None


def group_problems(group: GroupPlan, facts: MoveFacts, request: MoveRequest) -> Iterator[Reason]:
    """Say what keeps a group from continuing on the target."""
    found = facts.group(group.group)
    yield from _state_problems(found, facts, request)
    for why in facts.unreadable(group.group):
        yield why.within(f"offsets of group {group.group} cannot be read")
    for problem in _offset_problems(group, facts, request):
        yield Reason(problem)


def _state_problems(found: GroupFacts, facts: MoveFacts, request: MoveRequest) -> Iterator[Reason]:
    if found.target_state not in IDLE:
        who = ", ".join(found.target_members) or found.target_reason or found.target_state
        yield Reason(f"group {found.group} is active on {request.target} ({who}): stop it there")
    if found.source_state == "unknown":
        why = found.source_reason or "its state is not known"
        yield Reason(why, facts.source.group(found.group).action).within(
            f"group {found.group} on {request.source} may have members"
        )


def _offset_problems(group: GroupPlan, facts: MoveFacts, request: MoveRequest) -> Iterator[str]:
    stray = facts.stray_topics(group.group)
    if stray and not request.accept_stray_offsets:
        yield (
            f"group {group.group} also has offsets on {', '.join(stray)}, which do not move: add "
            f"them to the topics, delete these offsets, or move without them: "
            f"--accept-stray-offsets (in the form: accept_stray_offsets)"
        )
    for position in group.positions:
        problem = position_problem(group.group, position, request)
        if problem is not None:
            yield problem


def halted_problems(facts: MoveFacts, down: Reason | None) -> Iterator[Reason]:
    """Say what is not copied until somebody helps: a move would wait for it in vain.

    A partition that waits by itself, for a leader for one, is none of it.

    Args:
        facts: the look.
        down: why nobody copies the flow, None where somebody does.
    """
    replication = facts.replication()
    accept = facts.request.accept_open_transactions
    # How far a partition is whose map cannot be used is not known.
    missing = {
        each: each.remaining - (each.held_back if accept else 0)
        for each in replication
        if not each.damage
    }
    if down is not None and any(missing.values()):
        records = amount(sum(missing.values()), "record")
        topics = some(sorted({each.topic for each, count in missing.items() if count}))
        yield Reason(
            f"not copied: {records} of {topics}, and nobody copies: {down.text}", down.action
        )
    yield from (each.halted for each in replication if each.halted is not None)


def nothing_to_move(groups: tuple[GroupPlan, ...], topics: tuple[str, ...]) -> tuple[str, ...]:
    """Say what is missing where a move has no topic, or no group."""
    if not topics:
        return ("the flow replicates no topic: add one with 'srm-control topics --add'",)
    if not groups:
        return (f"no group has offsets on {', '.join(topics)}: name the groups to move",)
    return ()


def plan_warnings(
    groups: tuple[GroupPlan, ...], facts: MoveFacts, request: MoveRequest, *, is_copied: bool
) -> Iterator[str]:
    """Say what a move waits for, and what its groups skip or read again."""
    behind: dict[str, int] = {}
    for partition in facts.replication():
        if is_copied and partition.halted is None:
            behind[partition.topic] = behind.get(partition.topic, 0) + partition.remaining
        if partition.held_back:
            leave = f"{request.target} will lack {amount(partition.held_back, 'record')}"
            wait = "the move will wait until it has ended"
            yield (
                f"{partition.name} has an open transaction from offset {partition.stable_end} on: "
                f"{leave if request.accept_open_transactions else wait}"
            )
    for topic, remaining in sorted(behind.items()):
        if remaining:
            yield (
                f"replication of {topic} is {amount(remaining, 'record')} behind: "
                "the move will wait for it"
            )
    for group in groups:
        yield from _group_warnings(group, request)


def _group_warnings(group: GroupPlan, request: MoveRequest) -> Iterator[str]:
    for position in group.positions:
        if position.skipped and request.accept_skips:
            yield (
                f"group {group.group} will skip {amount(position.skipped, 'record')} of "
                f"{position.name}: {position.reason}"
            )
        if position.passed_kept:
            yield (
                f"group {group.group} passes over {amount(position.passed_kept, 'offset')} of "
                f"{position.target} that were kept on {request.target} when it returned: it has "
                f"read later records in {position.topic}. To read them, reset its offset there "
                "after the move"
            )
        if position.state == "conflict" and request.overwrite:
            yield (
                f"group {group.group} will read {amount(position.re_read, 'record')} of "
                f"{position.target} again"
            )
    if undecided := [position.name for position in group.positions if position.left_to_reset]:
        yield (
            f"group {group.group} has committed nothing for {', '.join(undecided)}: where it "
            f"starts on {request.target} is left to auto.offset.reset of its clients"
        )
