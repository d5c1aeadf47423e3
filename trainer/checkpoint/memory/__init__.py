"""The memory of the nodes as the fastest place of a checkpoint: what ranks copied out outlives them there."""
