"""A flow is paused, sealed and resumed on real brokers, beside a driver that lives."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest
from confluent_kafka import Producer
from tests.integration.test_driver import Lab, lab
from tests.waiting import DEADLINE_S, eventually

from srm.config.model import ClusterClients
from srm.domain.flow_state.replication_records import PAUSE_KEY, Pause, read_pause
from srm.domain.names import internal_topics
from srm.domain.names.topics import TopicPartition
from srm.engine.flows.supervision import state_topic
from srm.errors import ConflictError, NotFoundError, UnavailableError
from srm.kafka.state.driver_log import KafkaDriverLog, KafkaFlowSwitch

pytestmark = [pytest.mark.kafka, pytest.mark.integration]

__all__ = ["lab"]

PAUSE = Pause("", "test", "P is gone", 1, "m1")


def test_a_paused_flow_gives_out_nothing_until_it_is_resumed(lab: Lab):
    switch = lab.context.switch
    topic = lab.topic(partitions=2)
    lab.driver()
    eventually(lambda: len(lab.holders(topic)) == 2, "the first assignment")

    switch.pause(PAUSE)
    assert lab.holders(topic) == []
    standing = read_pause(state_topic(lab.context).read_commands())
    assert replace(standing, request="") == PAUSE
    switch.pause(PAUSE)
    assert lab.holders(topic) == []
    switch.pause(replace(PAUSE, move_id="m2"))
    switch.leave("m1")
    with pytest.raises(ConflictError, match="paused again"):
        switch.resume(request="another")
    assert lab.holders(topic) == []

    switch.pause(replace(PAUSE, request="mine", move_id="m2"))
    assert read_pause(state_topic(lab.context).read_commands()).request == "mine"
    switch.leave("m2")
    assert not switch.resume()
    eventually(lambda: len(lab.holders(topic)) == 2, "an assignment after the pause")


def test_a_pause_that_an_open_transaction_hides_is_not_overlooked(lab: Lab):
    """A driver that did would give out partitions after it, and slots would claim sealed copies."""
    lab.driver()
    topic = lab.topic()
    eventually(lambda: len(lab.holders(topic)) == 1, "the assignment")
    target = lab.config.cluster_clients(lab.flow.target)
    state = internal_topics.replication(lab.flow.source)
    other = Producer({**target.producer, "transactional.id": f"other-{lab.flow}"})
    other.init_transactions(DEADLINE_S)
    other.begin_transaction()
    other.produce(state, b"{}", b"of another program", partition=0)
    other.flush(DEADLINE_S)

    with closing(KafkaDriverLog(lab.flow, target)) as log:
        log.fence()
        log.publish({PAUSE_KEY: PAUSE.value()})
        with pytest.raises(UnavailableError, match="abort what others have open in partition 0"):
            log.read()
        other.abort_transaction(DEADLINE_S)
        found = {record.key: record.value for record in log.read()}

    assert read_pause(found) == PAUSE


def test_a_seal_takes_each_copy_and_names_those_it_cannot_take(lab: Lab):
    lab.driver()
    topic = lab.topic()
    eventually(lambda: len(lab.holders(topic)) == 1, "the assignment")
    copy = TopicPartition(f"{lab.flow.source}.{topic}", 0)
    gone = TopicPartition("nowhere", 0)

    assert lab.context.switch.seal([copy, gone]) == {}

    assert lab.context.target.high_watermarks([copy]) == {copy: 1}  # the marker of the claim


def test_a_flow_that_never_copied_has_nothing_to_pause(lab: Lab):
    flow = lab.flow.reverse
    with pytest.raises(NotFoundError, match="never copied"):
        KafkaFlowSwitch(flow, lab.context.source, ClusterClients.alike({})).pause(PAUSE)
