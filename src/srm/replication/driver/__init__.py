"""Who copies what: discovery, assignment, and the flow's one driver."""
