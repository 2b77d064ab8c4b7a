"""Adoption of remote topics that others have filled: the copy continues after their records."""
