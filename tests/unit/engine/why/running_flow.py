"""A flow that copies one topic, with nothing wrong: each test of a chain breaks one thing."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.engine.copying_records import CopiedTopic
from tests.unit.engine.status.test_loss_forecast import running

from srm.domain.flow_state.replication_records import (
    DRIVER_KEY,
    AssignedPartition,
    Assignment,
    DriverHeartbeat,
)
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow
from srm.engine.control import control_lists
from srm.engine.control.control_lists import ListChange, ListName
from srm.engine.ports import FlowContext
from srm.engine.why import Why, WhyStep


class RunningFlow(CopiedTopic):
    """Ten records of ``Topic``, all copied by a slot that lives; the flow back is on, too."""

    def __init__(self) -> None:
        super().__init__()
        self.write(*(b"%d" % number for number in range(10)))
        self.copy()
        self.b.add_topic(internal_topics.replication("P"), 2)
        self.b.add_topic(internal_topics.control("P"))
        self.beat()
        self.assign()
        running(self)

    @property
    def context(self) -> FlowContext:
        """The flow with the lists of srm-control, as commands open it."""
        context = self.forward
        lists = control_lists.load(self.b, Flow("P", "B"))
        return replace(
            context,
            config=control_lists.effective(context.config, lists),
            opposite=self.backward.config,
        )

    def beat(self, *, ended: bool = False) -> None:
        beat = DriverHeartbeat("d-1", "local-1", "host-7", 42, self.clock(), ended=ended)
        self._write({DRIVER_KEY: beat.value()})

    def assign(self, slot: str = "0", *partitions: int) -> None:
        ids = self.p.topics()["Topic"].topic_id, self.b.topics()["P.Topic"].topic_id
        given = tuple(
            AssignedPartition("Topic", number, ids[0], "P.Topic", ids[1])
            for number in partitions or (0,)
        )
        one = Assignment(slot, 1, given)
        self._write({one.key(): one.value()})

    def list_of(self, name: ListName, **change: tuple[str, ...]) -> None:
        """Change a list as srm-control does."""
        control_lists.change(self.b, Flow("P", "B"), name, ListChange(**change), self.clock())

    def _write(self, records: dict[bytes, bytes]) -> None:
        self.b.compacted_topic(internal_topics.replication("P")).write(records)


def step(answer: Why, name: str) -> WhyStep:
    """Return one step of a chain."""
    return next(step for step in answer.steps if step.name == name)


def wrong(answer: Why) -> list[str]:
    """Return the names of the steps that are not as they should be."""
    return [step.name for step in answer.steps if step.ok is False]
