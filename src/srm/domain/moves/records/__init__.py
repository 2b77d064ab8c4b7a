"""Request, plan, progress and outcome of a move as records."""
