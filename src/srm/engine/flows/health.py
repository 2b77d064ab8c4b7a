"""Is a flow well, and if not, what is to be done: one answer for the CLI, DAGs, REST and pages.

=========  =====================================================================================
state      meaning
=========  =====================================================================================
RUNNING    somebody copies, and nothing is in the way
DEGRADED   somebody copies, but not everything, or something else is wrong
STOPPED    nothing is copied that should be
PAUSED     nothing is copied because somebody decided so
IDLE       there is nothing to copy: the source has no topic that is selected
OFF        the configuration has switched it off
=========  =====================================================================================
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from srm.config.model import FlowConfig
from srm.domain.flow_state.pause import Pause
from srm.domain.groups.checkpoints import CheckpointOutcome
from srm.domain.names.topics import Flow
from srm.domain.text.amount import amount, some
from srm.domain.text.documents import encode
from srm.domain.text.reason import Reason
from srm.engine.flows.replicator_status import DriverStatus, down_reasons
from srm.engine.flows.status import FlowStatus, TopicStatus
from srm.engine.flows.supervision import FlowSigns

State = Literal["RUNNING", "DEGRADED", "STOPPED", "PAUSED", "IDLE", "OFF"]


@dataclass(frozen=True, slots=True)
class Health:
    """The state of a flow or topic, with what keeps it from running; the worst comes first."""

    state: State
    reasons: tuple[Reason, ...] = ()


def topic_health(topic: TopicStatus, found: FlowStatus) -> Health:
    """Judge one topic of a flow: of one that nobody copies none runs."""
    if topic.state == "stopped":
        return Health("STOPPED", (Reason(topic.reason or "stopped", topic.action),))
    if (idle := next(_idle_reasons(found), None)) is not None:
        return Health("STOPPED", (idle,))
    if found.source_error:
        return Health("DEGRADED", (Reason(f"{found.flow.source} does not answer"),))
    if topic.state in {"copying", "caught-up"}:
        return Health("RUNNING", (Reason(topic.reason),) if topic.reason else ())
    return Health("DEGRADED", (Reason(topic.reason or _waiting(topic), topic.action),))


def flow_health(found: FlowStatus) -> Health:
    """Judge a flow."""
    if not found.enabled:
        return Health("OFF", (off_reason(found.flow),))
    if found.pause is not None:
        return Health("PAUSED", (pause_reason(found.flow, found.pause),))
    down = tuple(down_reasons(found.flow, found.driver, found.slots))
    if down:
        return Health("STOPPED", (*down, *_troubles(found)))
    if not found.topics and not found.source_error:
        return Health("IDLE", (Reason("no topic is selected"),))
    troubles = tuple(_troubles(found))
    if found.topics and all(topic.state == "stopped" for topic in found.topics):
        return Health("STOPPED", troubles)
    return Health("DEGRADED" if troubles else "RUNNING", troubles)


def signs_health(signs: FlowSigns) -> Health:
    """Judge a flow by its state topic alone, as whoever supervises its replicator sees it."""
    if signs.driver is None or signs.ended:
        return Health("STOPPED", (Reason("no replicator drives it"),))
    if not signs.partitions and not signs.stopped:
        return Health("IDLE", (Reason("no partition is copied"),))
    reasons = signs.stopped
    if reasons and len(reasons) >= signs.partitions:
        return Health("STOPPED", reasons)
    return Health("DEGRADED" if reasons else "RUNNING", reasons)


def signs_line(signs: FlowSigns) -> str:
    """Say for a log how a flow is doing, and what is wrong."""
    health = signs_health(signs)
    why = f": {'; '.join(reason.text for reason in health.reasons)}" if health.reasons else ""
    return f"{signs.line()}, {health.state}{why}"


def document(found: FlowStatus) -> dict[str, Any]:
    """Return the status of a flow as plain JSON, with its health and that of its topics."""
    told: dict[str, Any] = json.loads(encode(found))
    told["health"] = json.loads(encode(flow_health(found)))
    for topic, one in zip(told["topics"], found.topics, strict=True):
        topic["health"] = json.loads(encode(topic_health(one, found)))
    return told


def off_reason(flow: Flow) -> Reason:
    """Say that a flow is switched off."""
    return Reason("switched off", f"set {flow}.enabled=true")


def pause_reason(flow: Flow, pause: Pause) -> Reason:
    """Say why a flow is paused."""
    return Reason(pause.reason, f"srm return status --flow '{flow}'")


def hints(
    config: FlowConfig, found: FlowStatus, outcomes: Sequence[CheckpointOutcome]
) -> Iterator[str]:
    """Say what keeps a flow from doing its work, each with the command or key that helps; pure."""
    flow = found.flow
    if found.pause is not None:
        yield (
            f"nothing is copied until it is decided what becomes of {flow.source}, when it "
            f"answers: srm return status --flow '{flow}', or, rebuilt and empty, "
            f"srm restore --from {flow.target} --to {flow.source}"
        )
    if not found.source_error:
        yield from _copying_hints(config, found)
        yield from _group_hints(config, found, outcomes)
    elif found.pause is None:
        yield (
            f"{flow.source} does not answer: this is what {flow.target} knows; to go on without "
            f"it: srm failover run --mode unplanned --source {flow.source} --target {flow.target}"
        )


def _copying_hints(config: FlowConfig, found: FlowStatus) -> Iterator[str]:
    flow = found.flow
    if not config.enabled:
        yield f"the flow is off: set {flow}.enabled=true"
    if not found.topics:
        ends = f"--source {flow.source} --target {flow.target}"
        yield f"no topic is selected: srm-control topics {ends} --add 'TOPIC'"
    elif found.driver is None or not found.driver.alive:
        yield _start_hint(flow, found.driver)


def _group_hints(
    config: FlowConfig, found: FlowStatus, outcomes: Sequence[CheckpointOutcome]
) -> Iterator[str]:
    flow, standing = found.flow, found.standing
    if not config.groups or not found.groups:
        none = without_groups(config)
        yield f"{none.text}: {none.action}" if none.action else none.text
    if found.groups and not config.sync_group_offsets_enabled:
        yield f"offsets are not written for groups: set {flow}.sync.group.offsets.enabled"
    replicas = (
        outcome.reason
        for outcome in outcomes
        if outcome.state == "not-selected"
        and config.policy.topic_source(outcome.upstream.topic) == flow.target
    )
    yield from dict.fromkeys(replicas)
    known = {group.group for group in standing.forecast.groups} if standing else set[str]()
    missing = sorted(group.group for group in found.groups if group.group not in known)
    if standing is not None and missing:
        yield (
            f"no checkpoint yet of {some(missing)}: if {flow.source} died now, auto.offset.reset "
            f"would decide where to begin: srm checkpoints emit --flow '{flow}', or the DAG "
            "srm_checkpoints"
        )


def without_groups(config: FlowConfig) -> Reason:
    """Say of a flow without groups why it has none, and what to do where there is something."""
    if config.groups:
        return Reason("no selected group has committed offsets on a selected topic")
    ends = f"--source {config.flow.source} --target {config.flow.target}"
    return Reason("no group is selected", f"srm-control groups {ends} --add 'GROUP'")


def _start_hint(flow: Flow, driver: DriverStatus | None) -> str:
    if driver is not None and driver.stopped_by:
        return (
            f"{driver.stopped_by} has stopped the replicator: srm replicator restart --flow "
            f"'{driver.stopped_flow}' lets srm_replication start it, srm replicate --flow '{flow}' "
            "starts it here"
        )
    return f"no replicator is running: srm replicate --flow '{flow}'"


def _idle_reasons(found: FlowStatus) -> Iterator[Reason]:
    if not found.enabled:
        yield off_reason(found.flow)
    if found.pause is not None:
        yield pause_reason(found.flow, found.pause)
    yield from down_reasons(found.flow, found.driver, found.slots)


def _troubles(found: FlowStatus) -> Iterator[Reason]:
    flow = found.flow
    if found.source_error:
        yield Reason(
            f"{flow.source} does not answer: {found.source_error}",
            f"srm failover plan --mode unplanned --source {flow.source} --target {flow.target}",
        )
    for state, means in (("stopped", "stopped"), ("not-created", "not created yet")):
        some_of = [topic for topic in found.topics if topic.state == state]
        if some_of:
            names = some([topic.topic for topic in some_of])
            ask = f"srm why {some_of[0].topic} --flow '{flow}'" if state == "not-created" else ""
            actions = {topic.action for topic in some_of if topic.action} or {ask}
            if len(actions) > 1:
                actions = {f"for each of these topics, run srm why TOPIC --flow '{flow}'"}
            [action] = actions
            yield Reason(f"{amount(len(some_of), 'topic')} {means}: {names}", action)
    silent = [slot.slot for slot in found.slots if not slot.alive]
    if silent and len(silent) < len(found.slots):
        yield Reason(f"{amount(len(silent), 'slot')} of {len(found.slots)} silent: {some(silent)}")
    if found.standing is not None and found.standing.proof is not None:
        wrong = sorted({one.group for one in found.standing.proof.disproved})
        if wrong:
            yield Reason(f"a checkpoint was proven wrong and is not emitted: {some(wrong)}")
    for name, error in found.errors.items():
        yield Reason(f"{name}: {error}")


def _waiting(topic: TopicStatus) -> str:
    if topic.state == "not-created":
        return "the copy is not created yet"
    if topic.reported < topic.partitions:
        return f"{topic.reported} of {topic.partitions} partitions are copied by somebody"
    return "nobody copies it now"
