"""Revisions of a report: conditions for the next one, and its record of earlier ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from srm.domain.moves.report.evidence import EarlierRevision, join_followers
from srm.domain.moves.report.report import MoveReport
from srm.domain.moves.report.signature import Signed, SigningKey
from srm.errors import IntegrityError


@dataclass(frozen=True, slots=True)
class KeptReport:
    """A stored report: its fields, and the bytes they were read from."""

    report: MoveReport
    signed: Signed

    @classmethod
    def decode(cls, value: bytes) -> KeptReport:
        """Decode the value of a record, or an exported file."""
        signed = Signed.decode(value)
        return cls(MoveReport.decode(signed.document), signed)

    @classmethod
    def made(cls, report: MoveReport, key: SigningKey | None) -> KeptReport:
        """Encode a report, and sign it if there is a key."""
        document = report.value()
        return cls(report, Signed(document, key.sign(document) if key else None))


def report_key(move_id: str) -> str:
    """Return the key of a move's report in the moves topic."""
    return f"report:{move_id}"


def newest(reports: Iterable[KeptReport]) -> KeptReport | None:
    """Return the report of the highest revision; of equal ones a signed one, then the first."""
    return max(
        reports,
        key=lambda kept: (kept.report.revision, kept.signed.signature is not None),
        default=None,
    )


def next_revision(
    kept: KeptReport | None, report: MoveReport, now_ms: int, key: SigningKey | None
) -> KeptReport:
    """Return the next revision, or the stored one if the report has not changed.

    Facts of earlier revisions that may not be visible again are kept: followers, cluster ids, and
    versions of the programs. Signing an unsigned report does not create a revision. A revision that
    was changed after it was signed contributes nothing, and the next one names it as a problem.

    ``kept``: the newest stored revision, None before the first one.
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
    """Return whether it was changed after signing; False if another key signed it."""
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
    problems = tuple(
        f"revision {one.revision} of this report was changed after it was signed"
        for one in previous
        if one.changed
    )
    if not problems:
        return report
    return replace(report, problems=(*report.problems, *problems), ok=False)


def chain_break(earlier: KeptReport, later: KeptReport) -> str | None:
    """Return why a revision does not follow from another of the same move, None if it does."""
    old, new = earlier.report.revision, later.report.revision
    if old == new:
        same = earlier.signed.document == later.signed.document
        return None if same else f"two different revisions {new} exist"
    listed = [one for one in later.report.previous if one.revision == old]
    if not listed:
        return f"revision {new} does not name revision {old} as an earlier one"
    if listed[0].sha256 != earlier.signed.sha256:
        return f"revision {new} follows from a different revision {old}"
    return None
