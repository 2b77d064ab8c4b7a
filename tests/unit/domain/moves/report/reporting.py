"""A report with something in each of its fields, and strategies for any other."""

from __future__ import annotations

from dataclasses import replace

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import strategies as st

from srm.domain.moves.disaster import (
    Forecast,
    GroupForecast,
    GroupOutcome,
    Outcome,
    PartitionOutcome,
    TopicForecast,
)
from srm.domain.moves.report import (
    Approval,
    CallReport,
    EarlierRevision,
    Follower,
    GroupReport,
    MoveReport,
    PartitionReport,
)
from srm.domain.moves.revisions import SigningKey

SEED = bytes(range(32))


def signing_key(seed: bytes = SEED) -> SigningKey:
    return SigningKey(Ed25519PrivateKey.from_private_bytes(seed))


PARTITION = PartitionReport(
    "Payments", 0, "P.Payments", "forward", "translated", 1000, 50, 0, 0, 990, 992, 992, 1040
)
GROUP = GroupReport(
    lag_at_hold=50,
    skipped=0,
    re_read=2,
    members_at_hold=1,
    resumed=True,
    rto_seconds=4.25,
    first_commit_seconds=6.5,
    assigned_seconds=4.0,
    rto_end="processed",
    uncommitted={"Payments-0": 2},
    planned_re_read=0,
    planned_skipped=0,
    partitions=(PARTITION,),
)
REPORT = MoveReport(
    move_id="failover-1",
    operation="failover",
    source="P",
    target="B",
    ok=False,
    step="reported",
    topics=("Payments",),
    created_ms=1_700_000_000_000,
    rpo_records=0,
    rpo_at_least=0,
    rpo_at_most=0,
    rto_seconds=4.25,
    rto_steps={"hold": 1.0, "wait and apply": 2.0, "go": 0.25, "resume": 1.0},
    groups={"billing": GROUP},
    residue={"Payments": 7},
    problems=("group billing read 2 records again",),
    assigned_seconds=4.0,
    residue_until_ms=1_700_000_300_000,
    notes=("group audit had nothing to process on B",),
    revision=2,
    written_ms=1_700_000_010_000,
    previous=(EarlierRevision(1, "ab" * 32, 1_700_000_005_000),),
    rpo_seconds=0.0,
    accepted=("accept_skips",),
    warnings=("replication lags",),
    times_ms={"holding": 1_700_000_001_000, "gone": 1_700_000_004_250},
    hold_stamp_ms=1_700_000_001_000,
    gone_stamp_ms=1_700_000_004_250,
    approvals=(
        Approval("ada@ops", "typed failover", 1_700_000_000_500, "go on?", {"records": 312}),
    ),
    followers=(
        Follower("group:billing", "b-1", "h", "consumer", "routing", "processed", 0.5, 4.0),
    ),
    redirect=("routing", "webhook"),
    fence="acl",
    calls=(CallReport("webhook", "go", "done", 1_700_000_004_300, "HTTP 200"),),
    clusters={"P": "id-of-p", "B": "id-of-b"},
    versions={"srm": "0.1.0"},
    config_sha256="cd" * 32,
)
FORECAST = Forecast(
    1_700_000_000_100,
    (TopicForecast("Payments", 3, 312, 330, 0.4, 1_500, ("Payments-2 is not copied: full",)),),
    (GroupForecast("billing", 3, 40, 0, 3_000),),
    unseen=("audit",),
    transactions=("P.Payments-1: till-7",),
)
OUTCOME = Outcome(
    "failover-1",
    "P->B",
    "same",
    1_700_000_900_000,
    "ada@ops",
    (
        PartitionOutcome("Payments", 0, 90, 100, 10, 1_700_000_000_000, 1_700_000_000_300),
        PartitionOutcome("Payments", 1, 50, 355, 305, None, None, 40, 45, 5, 2),
    ),
    {"billing": GroupOutcome({"Payments-0": 3}, {"Payments-0": 93})},
    {"Payments": "merge"},
)


def losing(report: MoveReport, at_least: int, at_most: int | None) -> MoveReport:
    """Return a report of a move that lost so many records."""
    exact = at_least if at_least == at_most else None
    return replace(report, rpo_records=exact, rpo_at_least=at_least, rpo_at_most=at_most)


DISASTER = replace(losing(REPORT, 315, 330), mode="unplanned", forecast=FORECAST, outcome=OUTCOME)
"""An unplanned move whose source has returned."""

_names = st.text(st.characters(codec="utf-8"), max_size=8)
_counts = st.integers(0, 2**62)
_seconds = st.none() | st.floats(0, 1e9, allow_nan=False)
_numbers = (
    st.none() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
)

approvals = st.builds(
    Approval,
    by=_names.filter(bool),
    how=_names,
    time_ms=_counts,
    text=_names,
    numbers=st.dictionaries(_names, _numbers, max_size=3),
)
followers = st.builds(
    Follower,
    subject=_names,
    client=_names,
    host=_names,
    kind=st.sampled_from(["consumer", "producer", ""]),
    redirector=st.sampled_from(["routing", "", "webhook"]),
    state=st.sampled_from(["held", "resumed", "processed", "member"]),
    left_seconds=_seconds,
    resumed_seconds=_seconds,
    processed_seconds=_seconds,
)
_partitions = st.builds(
    replace,
    st.just(PARTITION),
    topic=_names,
    committed=st.none() | _counts,
    applied=st.none() | _counts,
)
_groups = st.builds(
    replace,
    st.just(GROUP),
    re_read=_counts,
    rto_seconds=_seconds,
    partitions=st.lists(_partitions, max_size=2).map(tuple),
)
reports = st.builds(
    replace,
    st.just(REPORT),
    move_id=_names,
    revision=_counts,
    problems=st.lists(_names, max_size=2).map(tuple),
    groups=st.dictionaries(_names, _groups, max_size=2),
    approvals=st.lists(approvals, max_size=2).map(tuple),
    followers=st.lists(followers, max_size=2).map(tuple),
    clusters=st.dictionaries(_names, _names, max_size=2),
    rpo_seconds=_seconds,
    written_ms=_counts,
    forecast=st.sampled_from([None, FORECAST]),
    outcome=st.sampled_from([None, OUTCOME]),
)
