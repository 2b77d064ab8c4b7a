"""The pages of the SRM service: overview, flows, topics, groups, moves, why."""
