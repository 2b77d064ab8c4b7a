"""Claims: the one writer of each target partition."""
