"""State of one partition while a slot copies it."""
