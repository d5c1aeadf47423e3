"""The node and its ranks: processes, their place in the world, processors and network."""
