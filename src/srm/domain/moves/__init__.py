"""A move, pure: request, plan, positions, gate, routes, progress, report."""
