"""Copying: the life of each partition inside one Spark task."""
