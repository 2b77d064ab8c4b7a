"""Flows that other services watch, with the addresses of their pages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from srm.errors import ElsewhereError, SrmError
from srm.service.federation.merged_lists import federation_of
from srm.service.federation.remote_rows import FLOWS
from srm.service.views.documents import FlowSummary
from srm.service.views.flow_rows import summary
from srm.service.views.request_params import ViewsDep
from srm.service.views.snapshots import FlowLook


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Flows that this service does not watch.

    ``homes``: address of a service with pages of a target, by target.
    ``unasked``: configured flows that are not queried because Remote Querying is off.
    """

    flows: tuple[FlowSummary, ...] = ()
    homes: Mapping[str, str] = field(default_factory=dict)
    unasked: tuple[str, ...] = ()


async def elsewhere(request: Request, views: ViewsDep) -> Elsewhere:
    """Query the other services for their flows, each within its time limit."""
    foreign = [
        flow for flow in sorted(views.config.flows) if flow.target not in views.watched_targets
    ]
    federation = federation_of(request)
    if federation is None:
        return Elsewhere(unasked=tuple(map(str, foreign)))
    pages, missing = await federation.pages(request, FLOWS, 1000, "/v2/flows")
    found = {row.flow: row for part in pages.values() for row in part.items}
    for flow in foreign:
        if flow.target in missing:
            look = FlowLook(flow, views.config.flow(flow), error=missing[flow.target])
            found[str(flow)] = summary(look)
    return Elsewhere(tuple(found.values()), homes(request))


ElsewhereDep = Annotated[Elsewhere, Depends(elsewhere)]


def homes(request: Request) -> dict[str, str]:
    """Return the addresses of services with pages of other targets, by target."""
    federation = federation_of(request)
    if federation is None:
        return {}
    return {target: url for target in federation.targets if (url := federation.home(target))}


HomesDep = Annotated[dict[str, str], Depends(homes)]


def home_of(request: Request, error: SrmError) -> str:
    """Return the address of a service that has the missing page; empty if none is known."""
    federation = federation_of(request)
    if federation is None or not isinstance(error, ElsewhereError) or not error.target:
        return ""
    return federation.home(error.target)
