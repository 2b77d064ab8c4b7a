"""Why is this topic not copied, this group not translated, not able to move: the whole chain."""

from __future__ import annotations

from srm.engine.why.answer import Kind, Step, Why

__all__ = ["Kind", "Step", "Why"]
