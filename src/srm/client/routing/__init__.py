"""Routes as clients follow them, heartbeats and acknowledgements."""
