"""What operators may do by REST: the same as with ``srm replicator`` and ``srm-control``."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from srm.config.model import Config
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow
from srm.engine.control import control_lists
from srm.engine.control.compacted import ensure_compacted
from srm.engine.control.control_lists import ListChange, ListName, ListPair
from srm.engine.flows import driver_requests
from srm.engine.flows.driver_requests import DriverAnswer
from srm.engine.flows.supervision import topic_on
from srm.engine.ports import Cluster
from srm.service.access.concurrency_limit import ConcurrencyLimit
from srm.wiring import now_ms, open_cluster

_STRICT = ConfigDict(extra="forbid")
_TIMEOUT_S = 15.0
Pattern = Annotated[str, Field(min_length=1, max_length=1000, pattern=r"^[^,\x00-\x1f]+$")]
Patterns = Annotated[tuple[Pattern, ...], Field(max_length=100)]


@dataclass(frozen=True, slots=True)
class ReplicatorAction:
    """What becomes of the application that copies a flow.

    ``stop``: it ends, and no other one is started until a restart is asked for. ``restart``: it
    ends and supervision starts another one, which reads the configuration again.
    """

    __pydantic_config__ = _STRICT

    action: Literal["stop", "restart"]


@dataclass(frozen=True, slots=True)
class ReplicatorAnswer:
    """What became of a request so far: ``asked``, or ``not-running`` where nobody copies the flow.

    ``by`` is who asked, as it stands in the request. Other flows of the same application end, too.
    """

    flow: str
    action: str
    outcome: driver_requests.Outcome
    application: str
    host: str
    by: str


@dataclass(frozen=True, slots=True)
class ListsRow:
    """What a list of srm-control allows and denies on top of the properties file."""

    flow: str
    list: ListName
    allow: tuple[str, ...]
    deny: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ListsAction:
    """Entries (names or regular expressions) to add to and remove from one list.

    With ``dry_run`` nothing is written, and the answer says what would be.
    """

    __pydantic_config__ = _STRICT

    add: Patterns = ()
    remove: Patterns = ()
    add_deny: Patterns = ()
    remove_deny: Patterns = ()
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class ListsAnswer:
    """What a change of a list did; ``already`` and ``absent`` are entries that needed no change."""

    lists: ListsRow
    added: tuple[str, ...]
    removed: tuple[str, ...]
    already: tuple[str, ...]
    absent: tuple[str, ...]
    dry_run: bool
    by: str


@dataclass(frozen=True, slots=True)
class Nothing:
    """An action that needs no more said: ``{}``."""

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class Refreshed:
    """The flow is looked at now; ``looked_ms`` is when it was before."""

    flow: str
    looked_ms: int


Opener = Callable[[str], AbstractContextManager[Cluster]]


class Actions:
    """Carries out what operators ask for, on the target of a flow; nothing waits for long.

    ``turns`` is for whoever calls from an event loop, with a thread for each call.

    Args:
        config: the configuration; flows of it are acted on, watched here or not.
        opener: gives access to a cluster; by default the one of the configuration.
    """

    def __init__(self, config: Config, opener: Opener | None = None) -> None:
        self._config = config
        self.turns = ConcurrencyLimit()
        self._open = opener or (lambda alias: open_cluster(config, alias, _TIMEOUT_S))

    def replicator(self, flow: Flow, action: ReplicatorAction, by: str) -> ReplicatorAnswer:
        """Ask whoever drives a flow to end, as ``srm replicator`` does.

        Raises:
            SrmError: the flow is not known, or its target does not answer.
        """
        self._config.flow(flow)
        with self._open(flow.target) as target:
            topics = {flow: topic_on(target, flow)}
            [answer] = driver_requests.ask(topics, action.action, by, now_ms(), wait_s=0)
        return _answer_row(answer, by)

    def lists(self, flow: Flow, name: ListName) -> ListsRow:
        """Return a list as it is on the target.

        Raises:
            SrmError: the flow is not known, or its target does not answer.
        """
        self._config.flow(flow)
        with self._open(flow.target) as target:
            return _shown(flow, name, control_lists.load(target, flow).pair(name))

    def change_lists(self, flow: Flow, name: ListName, action: ListsAction, by: str) -> ListsAnswer:
        """Change a list, as ``srm-control`` does.

        Raises:
            SrmError: the flow is not known, an entry cannot be used, or the target does not answer.
        """
        config = self._config.flow(flow)
        changes = ListChange(action.add, action.remove, action.add_deny, action.remove_deny)
        with self._open(flow.target) as target:
            if action.dry_run or changes.is_empty:
                summary = control_lists.preview(target, flow, name, changes)
            else:
                topic = internal_topics.control(flow.source)
                ensure_compacted(
                    target, topic, replication_factor=config.internal_replication_factor
                )
                summary = control_lists.change(target, flow, name, changes, now_ms())
        return ListsAnswer(
            _shown(flow, name, summary.lists),
            summary.added,
            summary.removed,
            summary.already,
            summary.absent,
            action.dry_run,
            by,
        )


def _answer_row(answer: DriverAnswer, by: str) -> ReplicatorAnswer:
    return ReplicatorAnswer(
        str(answer.flow), answer.action, answer.outcome, answer.application, answer.host, by
    )


def _shown(flow: Flow, name: ListName, pair: ListPair) -> ListsRow:
    return ListsRow(str(flow), name, pair.allow, pair.deny)
