"""Members of a group at the broker, read only while a program starts or ends."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from srm.domain.moves.gate import is_member_of
from srm.errors import SrmError

if TYPE_CHECKING:
    from srm.kafka.cluster import KafkaCluster

log = logging.getLogger(__name__)

_IDLE_S: Final = 10.0
"""Seconds without a look after which connections are closed."""


_Wanted = tuple[str, str]
"""The cluster to read, and the client id of an ended run."""


@dataclass(frozen=True, slots=True)
class MembersLook:
    """The members of a group as ``client id@host``, ``own`` by client id, or the ``error``."""

    cluster: str
    own: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    error: str = ""


class MemberLooks:
    """Reads a group's members in its own thread, so an unavailable cluster blocks no caller."""

    def __init__(
        self,
        open_cluster: Callable[[str], AbstractContextManager[KafkaCluster]],
        group: str,
        client_id: str,
        report: Callable[[MembersLook], None],
    ) -> None:
        self._open_cluster = open_cluster
        self._group = group
        self._client_id = client_id
        self._report = report
        self._wanted: queue.SimpleQueue[_Wanted] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def look(self, cluster: str, dead: str = "") -> None:
        """Request one look for ``report``; members of the ``dead`` client id are removed first."""
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

    def _stay(self, wanted: _Wanted, opened: KafkaCluster) -> _Wanted | None:
        """Serve requests for one cluster; return the first for another one, None when idle."""
        cluster = wanted[0]
        while wanted[0] == cluster:
            self._report(self._look_at(*wanted, opened))
            try:
                wanted = self._wanted.get(timeout=_IDLE_S)
            except queue.Empty:
                return None
        return wanted

    def _look_at(self, cluster: str, dead: str, opened: KafkaCluster) -> MembersLook:
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
