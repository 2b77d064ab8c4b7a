"""Commands of moves, drills, returns and restores."""
