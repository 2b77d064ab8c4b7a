"""Decisions after a source returned or was rebuilt, and drills."""
