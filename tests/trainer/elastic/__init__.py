"""The supervisor of a node, with real processes."""
