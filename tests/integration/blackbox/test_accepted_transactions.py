"""A transaction nobody will decide soon: the operator goes without what it holds back."""

from __future__ import annotations

import signal

import pytest
from tests.integration.blackbox.audit import not_copied
from tests.integration.blackbox.stage import Stage
from tests.waiting import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.integration]

OPEN = 30


def test_what_an_accepted_open_transaction_holds_back_is_in_the_rpo_and_is_not_lost(
    stage: Stage,
) -> None:
    """The harness counts what a broker has and the copy does not have at go, open or decided."""
    reader = stage.reader("plain", reset="earliest", store=True)
    shop = stage.writer("shop", rate=200)
    stage.start(stage.p)
    eventually(lambda: reader.count("processed") > 50, "the group works on P")
    bank = stage.writer(
        "bank", transactional_id=f"bank-{stage.site.unique}", batch=OPEN, leave_open=True
    )
    stage.start(stage.p, bank)
    eventually(lambda: bank.count("open"), "a transaction is open")
    written = shop.count("acked")
    eventually(lambda: shop.count("acked") > written + 100, "records after it")

    stage.await_known(stage.p)
    with stage.run("accepted", stage.p, "--accept-open-transactions") as move:
        move.await_held()
        stage.stop(shop, reader)
        move.await_gone()
        behind = len(not_copied(stage.acked, stage.copy(stage.p)))
        stage.start(stage.b, reader)
        report = move.report()
    bank.signal(signal.SIGUSR1)
    bank.finish()
    stage.await_read(reader)
    stage.stop()

    assert behind > 50
    assert report["rpo_records"] == behind + OPEN
    assert not report["ok"]
    assert stage.count(reader).clean, stage.count(reader)
    assert not_copied(stage.acked, stage.copy(stage.p)) == []
