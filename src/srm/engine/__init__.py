"""Use cases of the control plane: one call, one bounded idempotent run."""
