"""SRM service: flows, groups and moves by REST, as metrics and as pages."""
