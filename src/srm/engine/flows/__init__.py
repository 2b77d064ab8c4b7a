"""Signs of a flow: its state topic, replicator and source, and supervision of the replicator."""
