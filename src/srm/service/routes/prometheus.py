"""``/metrics`` for Prometheus."""

from __future__ import annotations

import gzip
import re
from typing import Final

from fastapi import APIRouter, Request, Response

from srm.service.prometheus.exposition import Exposition

router = APIRouter(tags=["service"])

_GZIP: Final = re.compile(r"\s*gzip\s*(?!;\s*q\s*=\s*0(\.0*)?\s*$)(;.*)?", re.IGNORECASE)


# Not async: FastAPI then calls it in a thread, and does not block the event loop.
@router.get(
    "/metrics",
    response_class=Response,
    summary="All metrics for Prometheus",
    responses={200: {"content": {"text/plain": {}, "application/openmetrics-text": {}}}},
)
def scrape(request: Request) -> Response:
    """Return all metrics in Prometheus' text format, or as OpenMetrics if that is accepted."""
    exposition: Exposition = request.app.state.exposition
    body, content_type = exposition.scrape(request.headers.get("Accept", ""))
    headers = {"Content-Type": content_type, "Vary": "Accept, Accept-Encoding"}
    if _accepts_gzip(request.headers.get("Accept-Encoding", "")):
        headers["Content-Encoding"] = "gzip"
        body = gzip.compress(body, compresslevel=1, mtime=0)
    return Response(body, headers=headers)


def _accepts_gzip(codings: str) -> bool:
    return any(map(_GZIP.fullmatch, codings.split(",")))
