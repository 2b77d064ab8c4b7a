"""Logins, tokens, roles and TLS of the service."""
