"""Status, health and supervision of flows."""
