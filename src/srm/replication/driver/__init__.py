"""Discovery of topics, assignment of partitions to slots, and the flow's one driver."""
