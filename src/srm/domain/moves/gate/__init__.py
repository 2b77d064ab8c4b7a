"""Gate of a move: findings, forecast and approval."""
