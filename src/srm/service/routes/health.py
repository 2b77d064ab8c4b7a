"""``/health``: the service runs and has seen its clusters."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from srm.service.views.documents import ServiceHealth, TargetHealth
from srm.service.views.responses import ViewsDep, answer

router = APIRouter(tags=["service"])


@router.get("/health", response_model=ServiceHealth, summary="The service itself")
async def health(request: Request, views: ViewsDep) -> Response:
    """Return 200 after a look at every target, 503 before."""
    targets = tuple(TargetHealth(look.alias, look.looked_ms, look.error) for look in views.targets)
    ready = all(target.looked_ms for target in targets)
    return answer(request, ServiceHealth(ready, targets), status=200 if ready else 503)
