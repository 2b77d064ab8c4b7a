"""Rehearse a failover on shadow names of the groups, and leave nothing behind."""
