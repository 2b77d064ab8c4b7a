"""Translation, checkpoints and ledger of consumer groups."""
