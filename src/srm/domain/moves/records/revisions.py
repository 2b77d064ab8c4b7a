"""Revisions of a report: when one more is written, what it remembers of those before it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from srm.domain.moves.report.evidence import EarlierRevision, join_followers
from srm.domain.moves.report.report import MoveReport
from srm.domain.moves.report.signature import Signed
from srm.errors import IntegrityError

if TYPE_CHECKING:
    from srm.domain.moves.report.signing_keys import SigningKey


@dataclass(frozen=True, slots=True)
class KeptReport:
    """A report as it is kept: its fields, and the bytes they were read from."""

    report: MoveReport
    signed: Signed

    @classmethod
    def decode(cls, value: bytes) -> KeptReport:
        """Decode the value of a record, or the file that it was exported to.

        Raises:
            IntegrityError: it is not a report.
        """
        signed = Signed.decode(value)
        return cls(MoveReport.decode(signed.document), signed)

    @classmethod
    def made(cls, report: MoveReport, key: SigningKey | None) -> KeptReport:
        """Encode a report, and sign it where there is a key."""
        document = report.value()
        return cls(report, Signed(document, key.sign(document) if key else None))


def report_key(move_id: str) -> str:
    """Key of the report of a move in the moves topic."""
    return f"report:{move_id}"


def newest(reports: Iterable[KeptReport]) -> KeptReport | None:
    """Return the one of the highest revision, of equals one that is signed, then the first."""
    return max(
        reports,
        key=lambda kept: (kept.report.revision, kept.signed.signature is not None),
        default=None,
    )


def next_revision(
    kept: KeptReport | None, report: MoveReport, now_ms: int, key: SigningKey | None
) -> KeptReport:
    """Return what is to be kept: the next revision, or what is kept where there is no news.

    What was true when the first revision was written and may not be seen again stays: followers,
    the ids of clusters, who carried the move out. A report without a signature gets one without
    becoming another revision. Nothing is taken from one that was changed after it was signed, and
    the next one names that as a problem.

    Args:
        kept: the newest revision there is, None before the first one.
        report: what there is to say now.
        now_ms: epoch milliseconds.
        key: what to sign with, None where there is no key.
    """
    if kept is None:
        return KeptReport.made(replace(report, revision=1, written_ms=now_ms), key)
    changed = _was_changed(kept, key)
    before = kept.report
    joined = _naming_changes(report if changed else _join_reports(report, before), before.previous)
    joined = replace(
        joined, revision=before.revision, written_ms=before.written_ms, previous=before.previous
    )
    if joined == before and not changed:
        if kept.signed.signature is not None or key is None:
            return kept
        return replace(
            kept, signed=replace(kept.signed, signature=key.sign(kept.signed.document), damage="")
        )
    signature = kept.signed.signature
    earlier = EarlierRevision(
        before.revision,
        kept.signed.sha256,
        before.written_ms,
        "" if signature is None else signature.key_id,
        changed,
    )
    previous = (*before.previous, earlier)
    return KeptReport.made(
        replace(
            _naming_changes(joined, (earlier,)),
            revision=before.revision + 1,
            written_ms=now_ms,
            previous=previous,
        ),
        key,
    )


def _was_changed(kept: KeptReport, key: SigningKey | None) -> bool:
    """Whether it is not what was signed with this key any more; with another one: not known."""
    signature = kept.signed.signature
    if kept.signed.damage:
        return True
    if key is None or signature is None or signature.key_id != key.public.key_id:
        return False
    try:
        kept.signed.check(key.public)
    except IntegrityError:
        return True
    return False


def _join_reports(report: MoveReport, before: MoveReport) -> MoveReport:
    return replace(
        report,
        followers=join_followers(before.followers, report.followers),
        clusters={**report.clusters, **before.clusters},
        versions=before.versions or report.versions,
        config_sha256=before.config_sha256 or report.config_sha256,
    )


def _naming_changes(report: MoveReport, previous: Iterable[EarlierRevision]) -> MoveReport:
    """Say of each revision that was changed that it was: that is a problem of the report."""
    problems = tuple(
        f"revision {one.revision} of this report was changed after it was signed"
        for one in previous
        if one.changed
    )
    if not problems:
        return report
    return replace(report, problems=(*report.problems, *problems), ok=False)


def chain_break(earlier: KeptReport, later: KeptReport) -> str | None:
    """Say why a revision does not follow from another one of the same move, None where it does."""
    old, new = earlier.report.revision, later.report.revision
    if old == new:
        same = earlier.signed.document == later.signed.document
        return None if same else f"there are two different revisions {new} of it"
    listed = [one for one in later.report.previous if one.revision == old]
    if not listed:
        return f"revision {new} does not name revision {old} among those before it"
    if listed[0].sha256 != earlier.signed.sha256:
        return f"revision {new} follows from another revision {old} than this one"
    return None
