"""Looks at a group: whose members there are, what is dead, what cannot be known."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from tests.waiting import eventually

from srm.engine.cluster_ports import GroupDescription
from srm.errors import UnavailableError
from srm.follow.supervisor import MemberLooks, MembersLook

ME = "srm-follow-h-1-ab"


class Cluster:
    """A cluster with one group."""

    def __init__(self, *members: str, away: bool = False, reason: str = "") -> None:
        self.members = members
        self._away = away
        self._reason = reason

    def groups(self, names: Collection[str]) -> Mapping[str, GroupDescription]:
        if self._away:
            raise UnavailableError("nobody there")
        state = "unknown" if self._reason else "active" if self.members else "empty"
        return {
            name: GroupDescription(
                name, state, members=self.members, reason=self._reason, ids=self.members
            )
            for name in names
        }

    def remove_members(self, _group: str, ids: Collection[str]) -> None:
        self.members = tuple(one for one in self.members if one not in ids)


def looks_at(**clusters: Cluster) -> tuple[MemberLooks, list[MembersLook]]:
    @contextmanager
    def opened(alias: str) -> Iterator[Cluster]:
        yield clusters[alias]

    seen: list[MembersLook] = []
    return MemberLooks(opened, "g", ME, seen.append), seen


def test_own_members_are_told_from_others_on_each_cluster_that_is_asked_for() -> None:
    on_p = Cluster(f"{ME}-1@/h", f"{ME}-2-consumer-1@/h", "plain@/h")
    looks, seen = looks_at(P=on_p, B=Cluster())
    for cluster in ("P", "B", "P"):
        looks.look(cluster)
    eventually(lambda: len(seen) == 3, "all are seen")

    expected = MembersLook("P", (f"{ME}-1@/h", f"{ME}-2-consumer-1@/h"), ("plain@/h",))
    assert seen == [expected, MembersLook("B"), expected]


def test_members_of_a_dead_run_are_taken_out_and_those_of_another_stay() -> None:
    looks, seen = looks_at(P=Cluster(f"{ME}-1@/h", f"{ME}-1-x@/h", f"{ME}-12@/h", "plain@/h"))
    looks.look("P", dead=f"{ME}-1")
    eventually(lambda: seen, "seen")

    assert seen == [MembersLook("P", (f"{ME}-12@/h",), ("plain@/h",))]


def test_what_cannot_be_known_is_said_and_no_end_of_the_looks() -> None:
    looks, seen = looks_at(
        P=Cluster(away=True), B=Cluster(reason="grant Describe on group g"), C=Cluster()
    )
    for cluster in ("P", "B", "C"):
        looks.look(cluster)
    eventually(lambda: len(seen) == 3, "all are seen")

    assert [one.error for one in seen] == ["nobody there", "grant Describe on group g", ""]
