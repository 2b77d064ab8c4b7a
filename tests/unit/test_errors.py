"""What every error of srm says: what happened, and what to do."""

from __future__ import annotations

import pickle

import pytest

from srm.domain.text.amount import Reason
from srm.errors import AuthorizationError, ElsewhereError, SrmError


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (AuthorizationError("no right on T", "grant Read"), "no right on T; grant Read"),
        (SrmError("something is wrong"), "something is wrong"),
        (ElsewhereError("not watched here", "B"), "not watched here"),
    ],
)
def test_an_error_says_what_to_do_in_its_text_and_as_a_value_and_keeps_both_on_its_way(
    error: SrmError, text: str
) -> None:
    sent = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes, as executors send them

    assert str(error) == str(sent) == text
    assert type(sent) is type(error)
    assert vars(sent) == vars(error)


def test_a_reason_says_of_what_it_is_and_keeps_what_to_do() -> None:
    reason = Reason.of(AuthorizationError("no right on T", "grant Read")).within("group g")

    assert reason == Reason("group g: no right on T; grant Read", "grant Read")
