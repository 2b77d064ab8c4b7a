"""Actions of operators by REST, equal to those of ``srm replicator`` and ``srm-control``."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from srm.clock import now_ms
from srm.config.model import Config
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow
from srm.engine.cluster_ports import Cluster
from srm.engine.control import control_lists
from srm.engine.control.compacted import ensure_compacted
from srm.engine.control.control_lists import ListChange, ListName, ListPair
from srm.engine.flows import driver_requests
from srm.engine.flows.driver_requests import DriverAnswer
from srm.engine.flows.supervision import topic_on
from srm.service.access.access import ConcurrencyLimit
from srm.wiring import open_cluster

_STRICT = ConfigDict(extra="forbid")
_TIMEOUT_S = 15.0
Pattern = Annotated[str, Field(min_length=1, max_length=1000, pattern=r"^[^,\x00-\x1f]+$")]
Patterns = Annotated[tuple[Pattern, ...], Field(max_length=100)]


@dataclass(frozen=True, slots=True)
class ReplicatorAction:
    """Action on the application that copies a flow.

    ``stop``: it ends, and supervision starts no other one until a restart is requested.
    ``restart``: it ends and supervision starts another one, which reads the configuration again.
    """

    __pydantic_config__ = _STRICT

    action: Literal["stop", "restart"]


@dataclass(frozen=True, slots=True)
class ReplicatorAnswer:
    """State of a request: ``asked``, or ``not-running`` if no replicator copies the flow.

    ``by`` is the user in the request. Other flows of the same application also end.
    """

    flow: str
    action: str
    outcome: driver_requests.Outcome
    application: str
    host: str
    by: str


@dataclass(frozen=True, slots=True)
class ListsRow:
    """Entries that a list of srm-control allows and denies in addition to the properties file."""

    flow: str
    list: ListName
    allow: tuple[str, ...]
    deny: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ListsAction:
    """Entries (names or regular expressions) to add to and remove from one list.

    With ``dry_run`` nothing is written, and the answer shows the effect.
    """

    __pydantic_config__ = _STRICT

    add: Patterns = ()
    remove: Patterns = ()
    add_deny: Patterns = ()
    remove_deny: Patterns = ()
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class ListsAnswer:
    """Result of a change of a list; ``already`` and ``absent`` are entries without a change."""

    lists: ListsRow
    added: tuple[str, ...]
    removed: tuple[str, ...]
    already: tuple[str, ...]
    absent: tuple[str, ...]
    dry_run: bool
    by: str


@dataclass(frozen=True, slots=True)
class Nothing:
    """An action without parameters: ``{}``."""

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class Refreshed:
    """Acknowledgement of a refresh; ``looked_ms`` is the time of the previous one."""

    flow: str
    looked_ms: int


Opener = Callable[[str], AbstractContextManager[Cluster]]


class Actions:
    """Runs the actions of operators on the target of a flow; none blocks for long.

    ``turns`` limits callers from an event loop, which use a thread for each call.
    """

    def __init__(self, config: Config, opener: Opener | None = None) -> None:
        self._config = config
        self.turns = ConcurrencyLimit()
        self._open = opener or (lambda alias: open_cluster(config, alias, _TIMEOUT_S))

    def replicator(self, flow: Flow, action: ReplicatorAction, by: str) -> ReplicatorAnswer:
        """Request that the replicator of a flow ends, as ``srm replicator`` does."""
        self._config.flow(flow)
        with self._open(flow.target) as target:
            topics = {flow: topic_on(target, flow)}
            [answer] = driver_requests.ask(topics, action.action, by, now_ms(), wait_s=0)
        return _answer_row(answer, by)

    def lists(self, flow: Flow, name: ListName) -> ListsRow:
        """Return a list from the target."""
        self._config.flow(flow)
        with self._open(flow.target) as target:
            return _shown(flow, name, control_lists.load(target, flow).pair(name))

    def change_lists(self, flow: Flow, name: ListName, action: ListsAction, by: str) -> ListsAnswer:
        """Change a list, as ``srm-control`` does."""
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
