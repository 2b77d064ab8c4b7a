"""Steps of a move, from hold to verify."""
