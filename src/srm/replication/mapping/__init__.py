"""The offset map as a slot writes and reads it."""
