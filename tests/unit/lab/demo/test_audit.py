"""The verdict over the applications' records."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from srm_lab.demo.record import PaymentEntry
from srm_lab.demo.verdict import audit_group, number_stints

WRITTEN = [PaymentEntry(n, "P", "Payments", n % 2, n // 2, f"shop-{n:08d}") for n in range(1, 41)]


def on(cluster: str, entry: PaymentEntry) -> PaymentEntry:
    topic = "Payments" if cluster == entry.cluster else f"{entry.cluster}.Payments"
    return PaymentEntry(
        entry.time_ms + 1000, cluster, topic, entry.partition, entry.offset, entry.payment
    )


def there_and_back(first: int, second: int) -> list[PaymentEntry]:
    parts = (("P", WRITTEN[:first]), ("B", WRITTEN[first:second]), ("P", WRITTEN[second:]))
    return [on(cluster, entry) for cluster, entries in parts for entry in entries]


@given(st.integers(1, 20), st.integers(21, 39))
def test_each_payment_once_is_clean_wherever_the_moves_were(first: int, second: int) -> None:
    audit = audit_group("g", WRITTEN, there_and_back(first, second))

    assert (audit.processed, audit.skipped, audit.re_read, audit.unknown) == (40, 0, 0, 0)
    assert [stint.cluster for stint in audit.by_stint] == ["P", "B", "P"]
    assert [stint.processed for stint in audit.by_stint] == [first, second - first, 40 - second]


@given(st.data())
def test_every_missing_payment_is_counted_and_laid_to_one_stint(data: st.DataObject) -> None:
    processed = there_and_back(12, 30)
    missing = data.draw(st.sets(st.sampled_from([entry.payment for entry in processed])))

    audit = audit_group("g", WRITTEN, [e for e in processed if e.payment not in missing])

    assert audit.skipped == len(missing)
    assert sum(stint.skipped for stint in audit.by_stint) == len(missing)


def test_payments_missing_before_the_first_one_of_a_stint_were_skipped_by_its_move() -> None:
    processed = [on("P", e) for e in WRITTEN[:10]] + [on("B", e) for e in WRITTEN[14:]]

    audit = audit_group("g", WRITTEN, processed)

    assert [stint.skipped for stint in audit.by_stint] == [0, 4]


def test_payments_that_nothing_was_processed_after_belong_to_the_last_stint() -> None:
    processed = [on("P", e) for e in WRITTEN[:10]] + [on("B", e) for e in WRITTEN[10:30]]

    audit = audit_group("g", WRITTEN, processed)

    assert [stint.skipped for stint in audit.by_stint] == [0, 10]


def test_a_hole_inside_a_stint_is_laid_to_that_stint() -> None:
    processed = [e for e in there_and_back(10, 30) if e.payment != WRITTEN[15].payment]

    audit = audit_group("g", WRITTEN, processed)

    assert [stint.skipped for stint in audit.by_stint] == [0, 1, 0]
    assert WRITTEN[15].payment in audit.examples[0]


def test_payments_processed_again_are_laid_to_the_move_before_them() -> None:
    again = [on("B", e) for e in WRITTEN[8:]]

    audit = audit_group("g", WRITTEN, [on("P", e) for e in WRITTEN[:10]] + again)

    assert audit.re_read == 2
    assert [stint.re_read for stint in audit.by_stint] == [0, 2]


def test_a_payment_without_acknowledgement_is_unknown_and_no_re_read() -> None:
    stranger = PaymentEntry(1, "P", "Payments", 0, 99, "shop-99999999")

    audit = audit_group("g", WRITTEN, [*there_and_back(10, 30), stranger])

    assert (audit.unknown, audit.re_read, audit.skipped) == (1, 0, 0)


def test_an_application_that_recorded_nothing_has_skipped_everything() -> None:
    audit = audit_group("g", WRITTEN, [])

    assert audit.skipped == len(WRITTEN)
    assert len(audit.examples) == 5


def test_stints_are_numbered_by_changes_of_the_cluster() -> None:
    entries = [on(cluster, WRITTEN[0]) for cluster in "PPBPP"]

    assert number_stints(entries) == [0, 0, 1, 2, 2]
