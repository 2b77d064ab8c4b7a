"""What a slot measures is of the time that has gone by, whatever a wall clock says."""

from __future__ import annotations

import pytest

from srm import clock
from srm.domain.flow_state.replication_records import AssignedPartition
from srm.replication.mapping.starts import Start
from srm.replication.partition import PartitionCopy
from srm.replication.report import MetricsReader
from srm_lab.testing.flows import flow_config

START_MS = 1_700_000_000_000
ASSIGNED = AssignedPartition("pay", 0, "00" * 16, "P.pay", "11" * 16)


@pytest.mark.parametrize("set_by_ms", [0, -86_400_000, 600_000])
def test_an_interval_is_as_long_as_it_took_also_where_the_wall_clock_was_set_in_between(
    set_by_ms: int,
) -> None:
    seconds = [1000.0]
    with clock.using(lambda: seconds[0]):
        reader = MetricsReader(flow_config())
        copy = PartitionCopy(ASSIGNED, Start(0, 0))
        copy.source_end = 5
        seconds[0] += 12.5
        [measured] = reader.due([copy], START_MS + 12_500 + set_by_ms)

    assert (measured.time_ms, measured.interval_ms) == (START_MS + 12_500 + set_by_ms, 12_500)
