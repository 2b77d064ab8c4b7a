"""Who asks why of several flows is told which of them could not be asked."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import pytest
from tests.service_views import config_of

from srm import patience
from srm.config.model import Config
from srm.domain.names.topics import Flow
from srm.engine.why import Kind, Why
from srm.errors import NotFoundError, SrmError, UnavailableError
from srm.service.routes.flows import Explaining, query_why

HERE, AWAY, AWAY_TOO = Flow("P", "B"), Flow("P", "C"), Flow("P", "D")


def asked(flows: Collection[Flow], known: Collection[Flow] = (HERE,)) -> list[Why]:
    def asking(_config: Config, flow: Flow, name: str, kinds: Collection[Kind]) -> tuple[Why, ...]:
        if flow in {AWAY, AWAY_TOO}:
            raise UnavailableError(f"{flow.target} does not answer")
        return tuple(
            Why(flow, kind, name, flow in known, ok=True, verdict="copied", steps=())
            for kind in kinds
        )

    return asyncio.run(Explaining(config_of(*flows), asking).why(flows, "topic", "pay"))


def test_a_target_that_cannot_be_asked_is_named_next_to_the_answers_of_the_others() -> None:
    here, away = asked([AWAY, HERE])

    assert (here.flow, here.known, here.ok) == (HERE, True, True)
    assert (away.flow, away.kind, away.subject) == (AWAY, "topic", "pay")
    assert (away.known, away.ok) == (False, None)
    assert away.verdict == "not known: C does not answer"


@pytest.mark.parametrize("flows", [[AWAY, AWAY_TOO], [HERE, AWAY, AWAY_TOO]])
def test_where_nobody_knows_the_name_all_that_could_not_be_asked_are_named(
    flows: list[Flow],
) -> None:
    with pytest.raises(SrmError, match=r"C does not answer.*D does not answer") as raised:
        asked(flows, known=())

    assert isinstance(raised.value, UnavailableError)


def test_where_all_were_asked_and_nobody_knows_the_name_it_is_not_found() -> None:
    with pytest.raises(NotFoundError):
        asked([HERE], known=())


def test_a_target_has_no_more_patience_than_a_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first call alone took half a minute, for which a page showed nothing."""
    monkeypatch.setattr(patience, "DEFAULT_S", 0.1)

    with pytest.raises(UnavailableError, match=r"B\.bootstrap\.servers = 127\.0\.0\.1:1"):
        query_why(config_of(HERE), HERE, "pay", ["topic"])
