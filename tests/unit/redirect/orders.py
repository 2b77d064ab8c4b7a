"""An order, as a redirector gets it."""

from __future__ import annotations

from srm.domain.moves.routing import ClusterAddress, RedirectOrder

ORDER = RedirectOrder(
    key="m1/3/go",
    order=11,
    step="go",
    move_id="m1",
    attempt=3,
    operation="failover",
    mode="planned",
    source=ClusterAddress("P", "p1:9092"),
    target=ClusterAddress("B", "b1:9092,b2:9092"),
    topics=("Payments", "Refunds"),
    groups=("audit",),
    replicas={"Payments": "P.Payments", "Refunds": "P.Refunds"},
    members={"audit": ("app@10.0.0.3",)},
)
