"""The stream of made-up payments."""

from __future__ import annotations

from itertools import islice

from srm_lab.demo.application import Analytics, Bookkeeping, Fraud
from srm_lab.demo.record import PaymentStream, missing_numbers, read_payment


def payments(name: str, count: int) -> list[dict[str, object]]:
    stream = PaymentStream(name)
    return [read_payment(stream.next(1).value) for _ in range(count)]


def test_ids_are_unique_and_dense_for_each_producer() -> None:
    ids = [str(p["id"]) for name in ("shop", "branch") for p in payments(name, 500)]

    assert len(set(ids)) == 1000
    assert missing_numbers(ids) == {"shop": 0, "branch": 0}


def test_a_missing_number_is_seen() -> None:
    ids = [str(p["id"]) for p in payments("shop", 10)]

    assert missing_numbers(ids[:4] + ids[5:]) == {"shop": 1}


def test_the_key_is_the_paying_account() -> None:
    stream = PaymentStream("shop")

    for payment in (stream.next(7) for _ in range(100)):
        body = read_payment(payment.value)
        assert (body["payer"], body["id"], body["time_ms"]) == (payment.key, payment.id, 7)


def test_a_producer_makes_the_same_payments_again_and_no_other_producer_does() -> None:
    assert payments("shop", 20) == payments("shop", 20)
    assert [p["reference"] for p in payments("shop", 5)] != [
        p["reference"] for p in payments("branch", 5)
    ]


def test_some_accounts_are_much_busier_than_others() -> None:
    payers = [p["payer"] for p in payments("shop", 5_000)]
    counts = sorted((payers.count(one) for one in set(payers)), reverse=True)

    assert counts[0] > 20 * counts[-1]


def test_the_ledger_stays_balanced() -> None:
    ledger = Bookkeeping()
    for payment in islice(payments("shop", 300), 300):
        ledger.take(payment)

    assert ledger.summary().endswith(", balanced")


def test_fraud_raises_one_alarm_for_three_large_payments_in_a_row() -> None:
    fraud = Fraud()
    for amount in (300, 300, 300, 300, 10, 300, 300):
        fraud.take({"payer": "AC000001", "amount": amount})

    assert fraud.summary() == "1 accounts watched, 1 alarms"


def test_analytics_names_the_best_merchant() -> None:
    analytics = Analytics()
    assert analytics.summary() == "nothing sold"

    for merchant, amount in (("A", 10), ("B", 25), ("A", 10)):
        analytics.take({"merchant": merchant, "currency": "EUR", "amount": amount})
    assert analytics.summary() == "3 payments, most at B: 25 EUR"
