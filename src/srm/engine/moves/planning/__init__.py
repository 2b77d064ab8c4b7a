"""Facts and plan of a move."""
