"""Gate of a move: findings, presence of clients, fences, warnings and approval."""
