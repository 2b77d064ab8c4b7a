r"""Move consumer groups and producers from one cluster to the other: failover and failback.

Each step is one bounded call, safe to repeat and after a crash at any point::

    plan -> hold -> wait_status (until ready) -> apply -> go -> verify (until done) -> report
              \__________________\___________\-> release                     watch_residue <-'

The move id identifies everything; plan, progress and report are in ``__srm-moves`` on both
clusters. :func:`.holding.go` checks the gate itself, so no caller can send clients to a cluster on
which their groups are not synchronised.
"""
