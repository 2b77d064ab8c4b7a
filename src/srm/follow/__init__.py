"""``srm follow``: run any program, and follow the route of its group or topics for it."""
