"""What people are asked to do for clients that no program redirects: who, where, and whereto.

Each line goes by itself when the brokers show that it is done.
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
    """Say who has still to be stopped on the source.

    Args:
        request: of the move.
        address: bootstrap servers of the target.
        members: by group, those that no hold reaches, as ``client id@host``.
        writers: by topic that is still written to, how many producers follow no route.
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
            else f"stop whoever writes to topic {topic} on {request.source}; {later}"
        )


def asks_at_go(
    request: MoveRequest,
    address: str,
    absent: Mapping[str, Sequence[str]],
    residue: Mapping[str, int],
) -> Iterator[str]:
    """Say who has still to be started on the target.

    Args:
        request: of the move.
        address: bootstrap servers of the target.
        absent: groups without members on the target, with those they had when it was planned.
        residue: records that were written to the source after go, by topic.
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
