"""The source of a paused flow answers again: what it holds, and how the flow goes on."""
