"""Manual tasks for clients that no program redirects: which client, where, and whereto.

A task disappears when the brokers show that it is done.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from srm.domain.moves.records.request import MoveRequest
from srm.domain.text.amount import amount


def asks_at_hold(
    request: MoveRequest,
    address: str,
    members: Mapping[str, Sequence[str]],
    writers: Mapping[str, int],
) -> Iterator[str]:
    """Yield a task for each client that must still be stopped on the source.

    ``members``: members that the hold cannot reach, as ``client id@host``, by group.
    ``writers``: number of producers that follow no route, by topic; 0 if it is not known.
    """
    later = f"prepare {_settings(request, address)}, do not start there yet"
    for group, some in sorted(members.items()):
        for member in some:
            client, _, host = member.rpartition("@")
            yield (
                f"stop client {client or member} of group {group} on host {host or '?'}, which "
                f"reads {request.source}; {later}"
            )
    for topic, count in sorted(writers.items()):
        yield (
            f"stop {amount(count, 'producer')} of topic {topic} on {request.source}; {later}"
            if count
            else f"stop all producers of topic {topic} on {request.source}; {later}"
        )


def asks_at_go(
    request: MoveRequest,
    address: str,
    absent: Mapping[str, Sequence[str]],
    residue: Mapping[str, int],
) -> Iterator[str]:
    """Yield a task for each group or topic whose clients must still be started on the target.

    ``absent``: groups without members on the target, with their members in the plan.
    ``residue``: number of records written to the source after go, by topic.
    """
    there = _settings(request, address)
    for group, before in sorted(absent.items()):
        who = f" ({', '.join(before)})" if before else ""
        yield f"start group {group}{who} with {there}"
    for topic, count in sorted(residue.items()):
        if count:
            yield (
                f"{amount(count, 'record')} of topic {topic} {'was' if count == 1 else 'were'} "
                f"written to {request.source} after go: start their producers with {there}"
            )


def _settings(request: MoveRequest, address: str) -> str:
    return f"bootstrap.servers={address or '?'} (cluster {request.target})"
