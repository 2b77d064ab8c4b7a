"""Records that the target refuses, one after the other, in virtual time."""

from __future__ import annotations

from srm_lab.testing.simulation.cluster import TopicSettings
from srm_lab.testing.simulation.loop import simulated_loop
from srm_lab.testing.simulation.scenario import SimulatedScenario, SimulatedTopic
from srm_lab.testing.simulation.threads import simulated_threads
from srm_lab.testing.simulation.workload import Habit
from srm_lab.testing.simulation.world import SimulatedWorld

_RECORDS = 200


def test_a_skipped_record_costs_a_claim_and_a_report_but_no_pause() -> None:
    """Each record is too large for the target, so that each has to be reported before the next."""
    habit = Habit(batches=_RECORDS, most_records=1, pause_s=0.001, keys=3)
    topic = SimulatedTopic("T", 1, TopicSettings(1), TopicSettings(1, max_message_bytes=60), habit)
    with simulated_loop(1) as loop, simulated_threads(loop):
        scenario = SimulatedScenario(
            seed=1,
            slots=1,
            source_brokers=1,
            target_brokers=1,
            topics=[topic],
            accepts_loss=True,
            claim_lifetime_s=21_600.0,
            txn_expiry_s=604_800.0,
            late_markers=0.0,
            loses=0.0,
            spikes=0.0,
            clean_end=True,
        )
        world = SimulatedWorld.made(scenario, loop, lambda line: None)
        loop.run_until_complete(loop.world_task(world.live()))

        [notes] = world.state().notes
        assert notes.lost == _RECORDS
        assert world.list_unfinished() == []
        assert loop.time() - 1000 < _RECORDS / 4
