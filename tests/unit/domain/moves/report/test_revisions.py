"""A report is written again only where there is news, and each revision names those before it."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.domain.moves.report.reporting import REPORT, reports, signing_key

from srm.domain.moves.report import Follower, MoveReport
from srm.domain.moves.revisions import KeptReport, chain_break, newest, next_revision

KEY = signing_key()
MADE = replace(REPORT, revision=0, written_ms=0, previous=())


def test_the_first_revision_is_one_and_stays_while_there_is_no_news() -> None:
    first = next_revision(None, MADE, 10, KEY)

    assert (first.report.revision, first.report.written_ms, first.report.previous) == (1, 10, ())
    assert next_revision(first, MADE, 20, KEY) is first
    assert next_revision(first, MADE, 20, None) is first, "who has no key takes none away"


def test_news_makes_a_revision_that_names_the_one_before_it_by_its_hash() -> None:
    first = next_revision(None, MADE, 10, KEY)
    second = next_revision(first, replace(MADE, residue={"Payments": 8}), 20, KEY)
    third = next_revision(second, replace(MADE, residue={"Payments": 9}), 30, None)

    assert [(one.revision, one.sha256) for one in third.report.previous] == [
        (1, first.signed.sha256),
        (2, second.signed.sha256),
    ]
    assert (third.report.revision, third.report.written_ms) == (3, 30)
    assert third.signed.signature is None
    second.signed.check(KEY.public)
    for earlier, later in ((first, second), (first, third), (second, third), (third, third)):
        assert chain_break(earlier, later) is None


def test_a_revision_that_was_replaced_by_another_one_breaks_the_chain() -> None:
    first = next_revision(None, MADE, 10, KEY)
    second = next_revision(first, replace(MADE, residue={}), 20, KEY)
    forged = KeptReport.made(replace(first.report, rto_seconds=0.1), KEY)

    assert "follows from a different revision 1" in (chain_break(forged, second) or "")
    assert "two different revisions 1" in (chain_break(first, forged) or "")
    alone = KeptReport.made(replace(second.report, previous=()), KEY)
    assert "does not name revision 1" in (chain_break(first, alone) or "")


def test_a_report_that_somebody_changed_is_replaced_named_and_nothing_is_taken_from_it() -> None:
    first = next_revision(None, MADE, 10, KEY)
    assert first.signed.signature is not None
    lie = replace(first.report, clusters={"P": "another"}, rto_seconds=0.1)
    for signed in (
        replace(first.signed, document=lie.value()),
        replace(first.signed, document=lie.value(), signature=None, damage="cannot be read"),
    ):
        second = next_revision(KeptReport(lie, signed), MADE, 20, KEY)

        assert second.report.clusters == MADE.clusters
        assert second.report.rto_seconds == MADE.rto_seconds
        assert second.report.previous[-1].changed
        assert not second.report.ok
        assert second.report.problems[-1] == (
            "revision 1 of this report was changed after it was signed"
        )
        second.signed.check(KEY.public)
        assert next_revision(second, MADE, 30, KEY) is second, "it is said once, and stays"
        third = next_revision(second, replace(MADE, residue={}), 30, KEY).report
        assert third.problems.count(second.report.problems[-1]) == 1


def test_a_chain_says_which_revision_was_signed_with_which_key() -> None:
    other = signing_key(bytes(32))
    unsigned = next_revision(None, MADE, 10, None)
    one = next_revision(unsigned, replace(MADE, residue={}), 20, other)
    two = next_revision(one, MADE, 30, KEY)

    assert [(e.key_id, e.changed) for e in two.report.previous] == [
        ("", False),
        (other.public.key_id, False),
    ]


def test_a_report_that_could_not_be_signed_is_signed_later_as_it_is() -> None:
    unsigned = next_revision(None, MADE, 10, None)
    signed = next_revision(unsigned, MADE, 20, KEY)

    assert signed.signed.document == unsigned.signed.document
    signed.signed.check(KEY.public)


def test_what_may_not_be_seen_again_stays_in_later_revisions() -> None:
    first = next_revision(None, MADE, 10, KEY)
    blind = replace(
        MADE,
        residue={},
        followers=(Follower("group:audit", "a-1", "h", "consumer", "", "member"),),
        clusters={"P": "rebuilt", "C": "id-of-c"},
        versions={"srm": "9"},
        config_sha256="other",
    )
    second = next_revision(first, blind, 20, KEY).report

    assert [one.client for one in second.followers] == ["a-1", "b-1"]
    assert second.clusters == {"P": "id-of-p", "B": "id-of-b", "C": "id-of-c"}
    assert (second.versions, second.config_sha256) == (MADE.versions, MADE.config_sha256)


@given(st.lists(reports, min_size=1, max_size=4))
def test_any_sequence_of_reports_is_a_chain_that_can_be_checked(some: list[MoveReport]) -> None:
    kept: list[KeptReport] = []
    for number, report in enumerate(some):
        made = replace(report, move_id="m", revision=0, written_ms=0, previous=())
        found = next_revision(kept[-1] if kept else None, made, number, KEY)
        if not kept or found is not kept[-1]:
            kept.append(found)

    assert [one.report.revision for one in kept] == list(range(1, len(kept) + 1))
    for number, later in enumerate(kept):
        assert KeptReport.decode(later.signed.value()) == later
        assert all(chain_break(earlier, later) is None for earlier in kept[:number])
    assert newest(reversed(kept)) == kept[-1]


def test_of_equal_revisions_the_signed_one_counts() -> None:
    unsigned, signed = KeptReport.made(REPORT, None), KeptReport.made(REPORT, KEY)

    assert newest((unsigned, signed)) is signed
    assert newest((signed, unsigned)) is signed
    assert newest(()) is None
