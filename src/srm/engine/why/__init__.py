"""Explain why a topic is (not) copied, or a group (not) translated and able to move."""

from __future__ import annotations

from srm.engine.why.answer import Kind, Why, WhyStep, in_order
from srm.engine.why.asking import ask, not_found
from srm.engine.why.group import why_group
from srm.engine.why.rates import PACE_MS, is_fresh, rate_of, seconds_to_go
from srm.engine.why.topic import why_topic

__all__ = [
    "PACE_MS",
    "Kind",
    "Why",
    "WhyStep",
    "ask",
    "in_order",
    "is_fresh",
    "not_found",
    "rate_of",
    "seconds_to_go",
    "why_group",
    "why_topic",
]
