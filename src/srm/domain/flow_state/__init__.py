"""State of a flow: reports of slots, positions, anomalies and pauses."""
