"""Topics, policies, filters and the names of internal topics."""
