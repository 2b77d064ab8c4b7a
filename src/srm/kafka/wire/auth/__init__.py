"""Authentication and TLS of the wire connections."""
