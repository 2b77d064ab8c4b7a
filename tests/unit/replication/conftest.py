from __future__ import annotations

import pytest
from tests.unit.replication.driving import Lab


@pytest.fixture
def lab() -> Lab:
    return Lab()
