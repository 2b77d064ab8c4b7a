"""Own wire protocol: Fetch and Produce without copies, and requests client libraries lack."""
