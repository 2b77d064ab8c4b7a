"""Return of the source of a paused flow: its residue, and how the flow resumes."""
