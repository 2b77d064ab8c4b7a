"""Control lists, the topics and compacted tables of the control plane, and topic sync."""
