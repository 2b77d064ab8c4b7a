"""``srm follow``: runs any program, and follows the route of its group or topics for it."""
