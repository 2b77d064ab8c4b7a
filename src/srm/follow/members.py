"""Which members a group has at the broker: looked at while a program comes or goes, not else."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, Protocol

from srm.domain.moves.gate.presence import is_member_of
from srm.engine.ports import GroupDescription
from srm.errors import SrmError

log = logging.getLogger(__name__)

_IDLE_S: Final = 10.0
"""Seconds without a look after which connections are closed."""


_Wanted = tuple[str, str]
"""A cluster to look at, and the client id of a run that is dead."""


@dataclass(frozen=True, slots=True)
class MembersLook:
    """The members of a group on a cluster, as ``client id@host``.

    ``own`` are those that go by the id the program was given; ``error`` says why it is not known.
    """

    cluster: str
    own: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    error: str = ""


class GroupAccess(Protocol):
    """What is needed of a cluster."""

    def groups(self, names: Collection[str]) -> Mapping[str, GroupDescription]:
        """Describe groups."""

    def remove_members(self, group: str, goes: Callable[[str], bool]) -> None:
        """Remove the members whose client id is chosen."""


class MemberLooks:
    """Looks at a group in a thread of its own: a cluster that is away keeps nobody waiting.

    Args:
        open_cluster: gives access to a cluster by its alias.
        group: the group.
        client_id: what the program was told to call its clients.
        tell: called with each result.
    """

    def __init__(
        self,
        open_cluster: Callable[[str], AbstractContextManager[GroupAccess]],
        group: str,
        client_id: str,
        tell: Callable[[MembersLook], None],
    ) -> None:
        self._open_cluster = open_cluster
        self._group = group
        self._client_id = client_id
        self._tell = tell
        self._wanted: queue.SimpleQueue[_Wanted] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def look(self, cluster: str, dead: str = "") -> None:
        """Ask for one look; its result comes by ``tell``.

        ``dead`` is what a run of the program that has ended was told to call its clients: whatever
        of it is still a member is taken out before, or the group would wait for its session.
        """
        self._wanted.put((cluster, dead))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="srm-members", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        wanted: _Wanted | None = None
        while True:
            wanted = wanted or self._wanted.get()
            with self._open_cluster(wanted[0]) as opened:
                wanted = self._stay(wanted, opened)

    def _stay(self, wanted: _Wanted, opened: GroupAccess) -> _Wanted | None:
        """Look at one cluster as long as it is asked for; return what is wanted next, if known."""
        cluster = wanted[0]
        while wanted[0] == cluster:
            self._tell(self._look_at(*wanted, opened))
            try:
                wanted = self._wanted.get(timeout=_IDLE_S)
            except queue.Empty:
                return None
        return wanted

    def _look_at(self, cluster: str, dead: str, opened: GroupAccess) -> MembersLook:
        try:
            found = opened.groups([self._group])[self._group]
            if dead and any(is_member_of(dead, member) for member in found.members):
                opened.remove_members(self._group, lambda name: is_member_of(dead, f"{name}@"))
                found = opened.groups([self._group])[self._group]
        except SrmError as error:
            return MembersLook(cluster, error=str(error))
        if found.state == "unknown":
            return MembersLook(cluster, error=found.reason)
        own = tuple(one for one in found.members if is_member_of(self._client_id, one))
        return MembersLook(cluster, own, tuple(one for one in found.members if one not in own))
