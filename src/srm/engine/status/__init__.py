"""Status of a flow: one look at both clusters, its health and the forecast of a loss."""
