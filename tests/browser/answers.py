"""What ``srm why`` would answer of the prepared site."""

from __future__ import annotations

from collections.abc import Collection

from srm.domain.names.topics import Flow
from srm.engine.why import Kind, Why
from srm.engine.why.answer import Question
from srm.errors import NotFoundError
from srm.service.views.flow_rows import GroupCommits


class Answers:
    """Stands for asking both clusters."""

    async def why(self, flows: Collection[Flow], kind: Kind, name: str) -> list[Why]:
        """Answer for the first flow; nobody knows ``nowhere``."""
        if name == "nowhere":
            raise NotFoundError("no flow knows nowhere; similar: orders")
        flow, *_ = flows
        steps = (
            Question("enabled", f"is the flow {flow} enabled?").yes(),
            Question("allowed", f"does an allow list name the {kind}?").yes(
                f".* of {flow}.{kind}s"
            ),
            Question("exists", f"does {flow.source} have the {kind}?").yes("active, 1 member"),
            Question("translated", "is its offset known there?").yes(
                "partitions 0, 1, 2 of P.orders"
            ),
            Question("movable", f"could a planned move to {flow.target} start now?").yes(),
            Question("ready", "would it run without a wait?").unknown(
                "it would wait: 48,163 records to copy; copying takes at most about 28 s"
            ),
            Question("follows", "do its members follow routes?").no(
                f"{name}-1 does not: stop it there and start it on the other cluster",
                "run it under srm follow, or see docs/redirect.md",
            ),
        )
        verdict = "translated; can move, after a wait"
        return [Why(flow, kind, name, True, False, verdict, steps, steps[-1].action)]


class Offsets:
    """Clusters in which no group has committed anything: pages show what checkpoints say."""

    async def of(self, *_: object) -> GroupCommits:
        return GroupCommits()
