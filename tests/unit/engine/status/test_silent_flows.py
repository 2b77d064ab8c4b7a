"""A flow that nobody copies shows how far it falls behind, and no number that nobody knows."""

from __future__ import annotations

import pytest
from tests.unit.engine.copying_records import CopiedTopic
from tests.unit.engine.status.test_loss_forecast import running

from srm.domain.flow_state.replication_records import PAUSE_KEY, STATE_PARTITIONS, Pause
from srm.domain.metrics import RawMetric, decode_raw
from srm.domain.names import internal_topics
from srm.engine.flows.supervision import state_topic
from srm.engine.metrics.aggregation import write_silence

RAW_TOPIC = internal_topics.raw_metrics("P")


@pytest.fixture
def world() -> CopiedTopic:
    """Ten copied records and three that are not, told by a slot just now."""
    made = CopiedTopic.in_part()
    running(made)
    return made


def told(world: CopiedTopic) -> list[RawMetric]:
    found: list[RawMetric] = []
    table = world.b.compacted_topic(RAW_TOPIC)
    table.scan(lambda _, key, value: found.extend(decode_raw(value or b"")))
    return found


def test_the_lag_of_a_flow_whose_slots_are_gone_grows(world: CopiedTopic) -> None:
    world.clock.advance(60_000)
    first, _ = write_silence(world.forward)
    world.write(b"13", b"14")
    world.clock.advance(60_000)

    second, values = write_silence(world.forward)

    assert first is not None
    assert second is not None
    assert (first.lag_records, second.lag_records) == (3, 5)
    assert second.source_heard_ms == world.clock() - 120_000
    assert [(m.time_ms, m.lag_records, m.records, m.remote_topic) for m in told(world)] == [
        (world.clock() - 60_000, 3, 0, "P.Topic"),
        (world.clock(), 5, 0, "P.Topic"),
    ]
    assert decode_raw(values[0])[0].time_ms == world.clock()


def test_a_flow_that_is_copied_tells_for_itself(world: CopiedTopic) -> None:
    assert write_silence(world.forward) == (None, [])
    assert RAW_TOPIC not in world.b.topics()


def test_a_flow_that_is_switched_off_is_nobody_s_silence(world: CopiedTopic) -> None:
    world.clock.advance(60_000)
    world.settings["enabled"] = False

    assert write_silence(world.forward) == (None, [])


def test_a_paused_flow_falls_behind_though_its_slots_live(world: CopiedTopic) -> None:
    world.b.add_topic(internal_topics.replication("P"), STATE_PARTITIONS)
    pause = Pause("r1", "kafka-ops", "P has been given up", world.clock())
    state_topic(world.forward).write({PAUSE_KEY: pause.value()})

    silence, _ = write_silence(world.forward)

    assert silence is not None
    assert (silence.reason, silence.lag_records) == ("P has been given up", 3)


def test_of_a_source_that_does_not_answer_nothing_is_made_up(world: CopiedTopic) -> None:
    world.clock.advance(60_000)
    world.p.fail()

    silence, values = write_silence(world.forward)

    assert silence is not None
    assert (silence.lag_records, silence.partitions, values) == (None, 0, [])
    assert silence.source_heard_ms == world.clock() - 60_000
    assert RAW_TOPIC not in world.b.topics()


def test_of_a_topic_that_nobody_has_copied_yet_all_that_is_there_lags(world: CopiedTopic) -> None:
    world.clock.advance(60_000)
    world.p.add_topic("Topic2")
    world.p.produce("Topic2", 0, 30)
    world.p.trim("Topic2", 0, 10)

    write_silence(world.forward)

    assert {m.topic: m.lag_records for m in told(world)} == {"Topic": 3, "Topic2": 20}


def test_a_flow_that_has_caught_up_has_no_lag_to_tell(world: CopiedTopic) -> None:
    world.copy()
    running(world)
    world.clock.advance(60_000)

    silence, values = write_silence(world.forward)

    assert silence is not None
    assert (silence.lag_records, values) == (0, [])
