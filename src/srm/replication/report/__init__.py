"""Reports of a slot: positions, statuses, metrics and offset syncs."""
