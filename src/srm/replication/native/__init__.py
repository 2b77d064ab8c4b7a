"""C for what is done to record batches by the megabyte, and its counterpart in Python."""
