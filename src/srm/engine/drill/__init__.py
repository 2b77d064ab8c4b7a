"""Failover rehearsal with shadow groups, which are removed afterwards."""
