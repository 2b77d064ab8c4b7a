"""The driver's view of a flow whose partitions change their slot, from the reports of real slots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack

import pytest
from tests.integration.copying import CopyLab

from srm.domain import internal_topics
from srm.domain.replication_records import SlotReport
from srm.kafka.tail import KafkaTopicTail
from srm.replication.progress import ProgressBook
from srm.stack.kafka import KafkaBroker
from srm.testing.clock import Deadline

pytestmark = [pytest.mark.kafka, pytest.mark.integration]
