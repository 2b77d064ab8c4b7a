"""Reading of offset maps from their topics."""
