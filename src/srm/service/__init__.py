"""The SRM service: what is known of flows, groups and moves, by REST, as metrics and as pages."""
