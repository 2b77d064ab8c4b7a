"""A rebuilt cluster gets its topics back, and the flow from it goes on: see srm.domain.restore."""
