"""The copy path of a slot, from fetch to acknowledgement."""
