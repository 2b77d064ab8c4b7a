"""Restore of a rebuilt cluster: its topics come back, then the flow from it resumes."""
