"""What a consumer refuses before it connects to anything."""

from __future__ import annotations

from typing import cast

import pytest

from srm.client.consumer import FailoverConsumer, Processing
from srm.errors import UsageError


def test_a_word_for_processing_that_does_not_exist_is_refused_instead_of_taken_for_automatic() -> (
    None
):
    wrong = cast("Processing", "manual")

    with pytest.raises(UsageError, match="'manual' is invalid; use automatic or explicit"):
        FailoverConsumer({"group.id": "audit"}, processing=wrong)
