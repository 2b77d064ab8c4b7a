"""Commands of flows, topics and groups."""
