"""Checkpoints in the memory of the nodes, the fastest place: the copies outlive the ranks that made them."""
